#pragma once

// What exactly a model is: a digest of every tensor and of the metadata, and one id over all.
//
// The manifest does not depend on where or how the model is stored: split or whole, at any path,
// in any tensor order, GGUF v2 or v3. Any changed byte of a tensor, shape, type or metadata value
// gives another ModelId. split.* keys and tensor offsets are left out, as they describe the
// storage.
//
// Tensor digests are XXH3-128: they find damage and mix-ups at memory speed, but do not withstand
// somebody who constructs a collision. Metadata and the id are SHA-256.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "model/gguf_file.h"
#include "model/gguf_types.h"

namespace shardline {

struct TensorDigest {
  std::string name;
  GgufTensorType type = GgufTensorType::kF32;
  TensorShape shape;
  std::array<uint8_t, 16> xxh3 = {};  // Canonical (big-endian) XXH3-128 of the bytes.

  friend bool operator==(const TensorDigest&, const TensorDigest&) = default;
};

struct ModelManifest {
  std::array<uint8_t, 32> metadata_sha256 = {};
  std::vector<TensorDigest> tensors;  // By name, strictly ascending.

  const TensorDigest* Find(std::string_view name) const;

  friend bool operator==(const ModelManifest&, const ModelManifest&) = default;
};

// Reads every tensor byte once. Fails as GgufFile::CheckUnchanged.
absl::StatusOr<ModelManifest> BuildManifest(const GgufFile& file);

// "sha256:<hex>" over SerializeManifest.
ModelId ModelIdOf(const ModelManifest& manifest);

// Compares the named tensors with the manifest, reading their bytes and no others. Fails with
// kIncompatibleRecipe, naming file and tensor and both digests, and with kInvalidRequest if a
// name is in neither. For a node that loads only its own layers.
absl::Status VerifyTensors(const GgufFile& file, const ModelManifest& manifest,
                           std::span<const std::string> names);

// The same for the metadata.
absl::Status VerifyMetadata(const GgufFile& file, const ModelManifest& manifest);

// The one byte string of this manifest, for the wire and for a cache. About 50 bytes plus the
// name for a tensor.
std::string SerializeManifest(const ModelManifest& manifest);

// Only what SerializeManifest can have written; else kInvalidRequest. Any bytes may be given.
absl::StatusOr<ModelManifest> ParseManifest(std::string_view bytes);

}  // namespace shardline
