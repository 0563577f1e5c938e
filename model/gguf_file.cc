#include "model/gguf_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/gguf_split.h"

namespace shardline {
namespace {

absl::Status Bad(const std::string& path, const std::string& why) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat(path, ": ", why));
}

// Which set the file at `path` is a part of, by its name and its header, which must agree.
// Nothing for a file that stands alone.
absl::StatusOr<std::optional<SplitName>> SetOf(const std::string& path, const GgufHeader& header) {
  const std::optional<SplitName> name = ParseSplitName(path);
  SL_ASSIGN_OR_RETURN(const uint64_t count, header.metadata.GetUintOr("split.count", 0));
  if (count <= 1 && (!name || name->count == 1)) return std::nullopt;
  if (count <= 1) {
    return Bad(path, absl::StrCat("its name says part ", name->number, " of ", name->count,
                                  ", but it has no split.count"));
  }
  if (count > kSplitPartsMax) {
    return Bad(path, absl::StrCat("split.count is ", count, ", more than ", kSplitPartsMax));
  }
  if (!name) {
    return Bad(path, absl::StrCat("is one of ", count, " parts, but is not named as one ",
                                  "(name-00001-of-", absl::Dec(count, absl::kZeroPad5), ".gguf)"));
  }
  SL_RETURN_IF_ERROR(CheckSplitPart(header, name->number, name->count));
  return name;
}

}  // namespace

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  SL_ASSIGN_OR_RETURN(MappedFile given, MappedFile::Open(path));
  SL_ASSIGN_OR_RETURN(GgufHeader given_header, ParseGgufHeader(path, given.bytes()));
  SL_ASSIGN_OR_RETURN(const std::optional<SplitName> set, SetOf(path, given_header));

  std::vector<MappedFile> maps;
  std::vector<std::string> paths;
  std::vector<GgufHeader> headers;
  const auto add = [&](MappedFile map, GgufHeader header) {
    paths.push_back(map.path());
    maps.push_back(std::move(map));
    headers.push_back(std::move(header));
  };
  if (!set) {
    add(std::move(given), std::move(given_header));
  } else {
    for (int32_t number = 1; number <= set->count; ++number) {
      if (number == set->number) {
        add(std::move(given), std::move(given_header));
        continue;
      }
      const std::string part_path = SplitPartPath(*set, number);
      absl::StatusOr<MappedFile> map = MappedFile::Open(part_path);
      if (absl::IsNotFound(map.status())) {
        return absl::NotFoundError(absl::StrCat(part_path, ": part ", number, " of ", set->count,
                                                " is missing, needed by ", path));
      }
      SL_RETURN_IF_ERROR(map.status());
      SL_ASSIGN_OR_RETURN(GgufHeader header, ParseGgufHeader(part_path, map->bytes()));
      SL_RETURN_IF_ERROR(CheckSplitPart(header, number, set->count));
      add(*std::move(map), std::move(header));
    }
    SL_RETURN_IF_ERROR(CheckSplitSet(headers));
  }
  SL_ASSIGN_OR_RETURN(GgufFile file, Assemble(std::move(paths), std::move(headers)));
  file.maps_ = std::move(maps);
  return file;
}

absl::StatusOr<GgufFile> GgufFile::View(const std::string& name, std::span<const std::byte> bytes) {
  SL_ASSIGN_OR_RETURN(GgufHeader header, ParseGgufHeader(name, bytes));
  std::vector<GgufHeader> headers;
  headers.push_back(std::move(header));
  return Assemble({name}, std::move(headers));
}

absl::StatusOr<GgufFile> GgufFile::Assemble(std::vector<std::string> paths,
                                            std::vector<GgufHeader> headers) {
  GgufFile file;
  file.paths_ = std::move(paths);
  for (size_t part = 0; part < headers.size(); ++part) {
    for (GgufTensor& tensor : headers[part].tensors) {
      tensor.part_index = static_cast<int32_t>(part);
      const bool inserted = file.index_.emplace(tensor.name, file.tensors_.size()).second;
      SL_CHECK(inserted);  // Both parsers of headers and of sets refuse doubles.
      file.tensors_.push_back(std::move(tensor));
    }
  }
  file.metadata_ = std::move(headers.front().metadata);
  return file;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status GgufFile::CheckUnchanged() const {
  for (const MappedFile& map : maps_) SL_RETURN_IF_ERROR(map.CheckUnchanged());
  return absl::OkStatus();
}

}  // namespace shardline
