#include "model/manifest.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/byte_reader.h"

namespace shardline {
namespace {

constexpr std::string_view kMagic = "SLMANIF1";

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    SL_CHECK(context_ != nullptr);
    SL_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Update(const void* data, size_t size) {
    SL_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void UpdateNumber(uint64_t value) { Update(&value, sizeof(value)); }
  void UpdateText(std::string_view text) {
    UpdateNumber(text.size());
    Update(text.data(), text.size());
  }

  std::array<uint8_t, 32> Finish() {
    std::array<uint8_t, 32> digest;
    SL_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

template <size_t N>
std::string Hex(const std::array<uint8_t, N>& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// Keys sorted; each with its type, count and bytes as in the file. An array of arrays is its
// bytes, which carry the inner types and counts.
std::array<uint8_t, 32> DigestMetadata(const GgufMetadata& metadata) {
  std::vector<const GgufMetadata::Entry*> entries;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with("split.")) entries.push_back(&entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->key < b->key; });
  Sha256 sha;
  for (const GgufMetadata::Entry* entry : entries) {
    const GgufValue& value = entry->value;
    sha.UpdateText(entry->key);
    sha.UpdateNumber(static_cast<uint64_t>(value.type));
    sha.UpdateNumber(static_cast<uint64_t>(value.element_type));
    sha.UpdateNumber(value.count);
    sha.UpdateText({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
  }
  return sha.Finish();
}

TensorDigest DigestTensor(const GgufTensor& tensor) {
  TensorDigest digest{.name = std::string(tensor.name), .type = tensor.type, .shape = tensor.shape};
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(tensor.data.data(), tensor.data.size()));
  static_assert(sizeof(canonical.digest) == sizeof(digest.xxh3));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.xxh3.begin());
  return digest;
}

std::string Describe(const TensorDigest& digest) {
  return absl::StrCat(std::string(TraitsOf(digest.type).name), " ", ShapeToString(digest.shape),
                      " ", Hex(digest.xxh3));
}

absl::Status Invalid(const std::string& why) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat("manifest: ", why));
}

absl::StatusOr<TensorDigest> ParseTensor(ByteReader& reader) {
  TensorDigest digest;
  const std::optional<std::string_view> name = reader.ReadString(kGgufTensorNameBytesMax);
  if (!name || name->empty()) return Invalid("tensor name of impossible length");
  digest.name = std::string(*name);
  const std::optional<uint32_t> type_id = reader.Read<uint32_t>();
  const std::optional<uint32_t> dimension_count = reader.Read<uint32_t>();
  if (!type_id || !dimension_count || *dimension_count < 1 || *dimension_count > 4) {
    return Invalid(absl::StrCat("tensor ", Quoted(digest.name), " has no shape of 1 to 4 sizes"));
  }
  const std::optional<GgufTensorType> type = GgufTensorTypeOf(*type_id);
  if (!type) {
    return Invalid(absl::StrCat("tensor ", Quoted(digest.name), " has type id ", *type_id,
                                ", not supported by this build"));
  }
  digest.type = *type;
  for (uint32_t i = 0; i < *dimension_count; ++i) {
    const std::optional<int64_t> size = reader.Read<int64_t>();
    if (!size) return Invalid("ends inside a shape");
    digest.shape.push_back(*size);
  }
  if (!TensorBytes(digest.type, digest.shape)) {
    return Invalid(absl::StrCat("tensor ", Quoted(digest.name), " has an impossible shape"));
  }
  const auto bytes = reader.ReadBytes(digest.xxh3.size());
  if (!bytes) return Invalid("ends inside a digest");
  std::memcpy(digest.xxh3.data(), bytes->data(), bytes->size());
  return digest;
}

}  // namespace

const TensorDigest* ModelManifest::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorDigest& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors.end() || found->name != name ? nullptr : &*found;
}

absl::StatusOr<ModelManifest> BuildManifest(const GgufFile& file) {
  SL_RETURN_IF_ERROR(file.CheckUnchanged());
  ModelManifest manifest{.metadata_sha256 = DigestMetadata(file.metadata())};
  manifest.tensors.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) manifest.tensors.push_back(DigestTensor(tensor));
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  SL_RETURN_IF_ERROR(file.CheckUnchanged());
  return manifest;
}

ModelId ModelIdOf(const ModelManifest& manifest) {
  Sha256 sha;
  const std::string bytes = SerializeManifest(manifest);
  sha.Update(bytes.data(), bytes.size());
  return ModelId(absl::StrCat("sha256:", Hex(sha.Finish())));
}

absl::Status VerifyTensors(const GgufFile& file, const ModelManifest& manifest,
                           std::span<const std::string> names) {
  SL_RETURN_IF_ERROR(file.CheckUnchanged());
  for (const std::string& name : names) {
    const GgufTensor* tensor = file.FindTensor(name);
    const TensorDigest* wanted = manifest.Find(name);
    if (tensor == nullptr || wanted == nullptr) {
      const std::string where = tensor == nullptr ? file.metadata().file() : "manifest";
      return MakeFailure(FailureKind::kInvalidRequest,
                         absl::StrCat(where, ": missing tensor ", Quoted(name)));
    }
    const TensorDigest found = DigestTensor(*tensor);
    if (found == *wanted) continue;
    return MakeFailure(FailureKind::kIncompatibleRecipe,
                       absl::StrCat(file.PathOf(*tensor), ": tensor ", Quoted(name), " is ",
                                    Describe(found), ", but the model's is ", Describe(*wanted)));
  }
  return file.CheckUnchanged();
}

absl::Status VerifyMetadata(const GgufFile& file, const ModelManifest& manifest) {
  const std::array<uint8_t, 32> found = DigestMetadata(file.metadata());
  if (found == manifest.metadata_sha256) return absl::OkStatus();
  return MakeFailure(FailureKind::kIncompatibleRecipe,
                     absl::StrCat(file.metadata().file(), ": metadata is ", Hex(found),
                                  ", but the model's is ", Hex(manifest.metadata_sha256)));
}

// Magic, metadata digest, u32 count, then per tensor: u64 length and name, u32 type, u32
// dimension count, i64 sizes, 16 bytes of digest. Little-endian.
std::string SerializeManifest(const ModelManifest& manifest) {
  std::string bytes(kMagic);
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(manifest.metadata_sha256);
  append(static_cast<uint32_t>(manifest.tensors.size()));
  for (const TensorDigest& tensor : manifest.tensors) {
    append(static_cast<uint64_t>(tensor.name.size()));
    bytes += tensor.name;
    append(static_cast<uint32_t>(tensor.type));
    append(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) append(size);
    append(tensor.xxh3);
  }
  return bytes;
}

absl::StatusOr<ModelManifest> ParseManifest(std::string_view bytes) {
  constexpr size_t kTensorBytesLeast = 8 + 1 + 4 + 4 + 8 + 16;
  ByteReader reader(std::as_bytes(std::span(bytes.data(), bytes.size())));
  ModelManifest manifest;
  const auto magic = reader.ReadBytes(kMagic.size());
  if (!magic || std::memcmp(magic->data(), kMagic.data(), kMagic.size()) != 0) {
    return Invalid("not one of this version");
  }
  const auto metadata = reader.ReadBytes(manifest.metadata_sha256.size());
  const std::optional<uint32_t> count = reader.Read<uint32_t>();
  if (!metadata || !count) return Invalid("ends inside the preamble");
  std::memcpy(manifest.metadata_sha256.data(), metadata->data(), metadata->size());
  if (*count > kGgufTensorsMax || *count > reader.remaining() / kTensorBytesLeast) {
    return Invalid(
        absl::StrCat("tensor count ", *count, " impossible for ", bytes.size(), " bytes"));
  }
  for (uint32_t i = 0; i < *count; ++i) {
    SL_ASSIGN_OR_RETURN(TensorDigest tensor, ParseTensor(reader));
    if (!manifest.tensors.empty() && manifest.tensors.back().name >= tensor.name) {
      return Invalid(absl::StrCat("tensor ", Quoted(tensor.name), " is out of order"));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  if (reader.remaining() != 0) return Invalid("bytes after the end");
  return manifest;
}

}  // namespace shardline
