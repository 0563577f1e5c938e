#include "model/gguf_split.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

absl::Status Foreign(const GgufHeader& part, const std::string& why) {
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat(part.metadata.file(), ": not a part of this set: ", why));
}

std::optional<int32_t> FiveDigits(std::string_view text) {
  int32_t value = 0;
  if (text.size() != 5 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value)) return std::nullopt;
  return value;
}

bool SameValue(const GgufValue& a, const GgufValue& b) {
  return a.type == b.type && a.element_type == b.element_type && a.count == b.count &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

absl::Status CheckSharedKeys(const GgufHeader& first, const GgufHeader& part) {
  for (const GgufMetadata::Entry& entry : part.metadata.entries()) {
    if (entry.key == "split.no") continue;
    const GgufValue* value = first.metadata.Find(entry.key);
    if (value != nullptr && !SameValue(*value, entry.value)) {
      return Foreign(part, absl::StrCat("metadata key ", Quoted(entry.key), " differs from ",
                                        first.metadata.file()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNames(std::span<const GgufHeader> headers) {
  absl::flat_hash_map<std::string_view, size_t> owner;
  for (size_t i = 0; i < headers.size(); ++i) {
    for (const GgufTensor& tensor : headers[i].tensors) {
      const auto [found, inserted] = owner.emplace(tensor.name, i);
      if (!inserted) {
        return Foreign(headers[i], absl::StrCat("tensor ", Quoted(tensor.name), " is also in ",
                                                headers[found->second].metadata.file()));
      }
    }
  }
  return absl::OkStatus();
}

// The layer matrices of one part: kind ("attn_q.weight") -> the types they are stored in.
using TypesByKind = std::map<std::string_view, std::set<GgufTensorType>>;

TypesByKind LayerMatrixTypes(const GgufHeader& part) {
  TypesByKind types;
  for (const GgufTensor& tensor : part.tensors) {
    if (!tensor.name.starts_with("blk.") || tensor.shape.size() < 2) continue;
    const size_t dot = tensor.name.find('.', 4);
    if (dot != tensor.name.npos) types[tensor.name.substr(dot + 1)].insert(tensor.type);
  }
  return types;
}

enum class Likeness { kUnknown, kAlike, kForeign };

Likeness Compare(const TypesByKind& a, const TypesByKind& b) {
  Likeness likeness = Likeness::kUnknown;
  for (const auto& [kind, types] : a) {
    const auto found = b.find(kind);
    if (found == b.end()) continue;
    for (const GgufTensorType type : types) {
      if (found->second.contains(type)) return Likeness::kAlike;
    }
    likeness = Likeness::kForeign;
  }
  return likeness;
}

absl::Status CheckQuantisation(std::span<const GgufHeader> headers) {
  std::vector<TypesByKind> parts;
  for (const GgufHeader& header : headers) parts.push_back(LayerMatrixTypes(header));
  // Later parts first: of two that differ, the one without the metadata is called foreign.
  for (size_t i = parts.size(); i-- > 0;) {
    bool foreign = false;
    bool alike = false;
    for (size_t j = 0; j < parts.size(); ++j) {
      if (i == j) continue;
      const Likeness likeness = Compare(parts[i], parts[j]);
      foreign |= likeness == Likeness::kForeign;
      alike |= likeness == Likeness::kAlike;
    }
    if (foreign && !alike) {
      return Foreign(headers[i], "its weights are of another quantisation than the other parts'");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<SplitName> ParseSplitName(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kPattern.size());
  const std::optional<int32_t> number = FiveDigits(tail.substr(1, 5));
  const std::optional<int32_t> count = FiveDigits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !number ||
      !count || *number < 1 || *number > *count) {
    return std::nullopt;
  }
  return SplitName{path.substr(0, path.size() - kPattern.size()), *number, *count};
}

std::string SplitPartPath(const SplitName& name, int32_t number) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", name.prefix, number, name.count);
}

absl::Status CheckSplitPart(const GgufHeader& header, int32_t number, int32_t count) {
  const auto part_index = header.metadata.GetUint("split.no");
  const auto part_count = header.metadata.GetUint("split.count");
  if (!part_index.ok() || !part_count.ok()) {
    return Foreign(header, "it has no split.no and split.count");
  }
  if (*part_index + 1 != static_cast<uint64_t>(number) ||
      *part_count != static_cast<uint64_t>(count)) {
    return Foreign(header, absl::StrCat("it says it is part ", *part_index + 1, " of ", *part_count,
                                        ", its name says ", number, " of ", count));
  }
  return absl::OkStatus();
}

absl::Status CheckSplitSet(std::span<const GgufHeader> headers) {
  const GgufHeader& first = headers.front();
  uint64_t total = 0;
  for (const GgufHeader& header : headers) {
    SL_RETURN_IF_ERROR(CheckSharedKeys(first, header));
    total += header.tensors.size();
  }
  SL_RETURN_IF_ERROR(CheckNames(headers));
  SL_ASSIGN_OR_RETURN(const uint64_t expected, first.metadata.GetUint("split.tensors.count"));
  if (total != expected) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat(first.metadata.file(), ": the set has ", total,
                     " tensors, split.tensors.count says ", expected, ": a part is foreign"));
  }
  return CheckQuantisation(headers);
}

}  // namespace shardline
