#pragma once

// Reads the header of one GGUF file: magic, counts, metadata, tensor table. Versions 2 and 3,
// little-endian. Pure: bytes in, checked description out.
//
// The file is foreign. Counts are compared with the bytes that are there before anything is
// allocated, every sum and product is checked, and what this build does not know is refused by
// name. After ParseGgufHeader every view and extent in its result lies inside the bytes given.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf_metadata.h"
#include "model/gguf_types.h"

namespace shardline {

struct GgufTensor {
  std::string_view name;
  GgufTensorType type = GgufTensorType::kF32;
  TensorShape shape;                // Row length first, as in the file; 1 to 4 sizes, all positive.
  std::span<const std::byte> data;  // Exactly TensorBytes(type, shape); aligned as the file says.
  int32_t part_index = 0;           // Which file of a split set holds it.
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // In the file's order; names unique, extents disjoint.
};

// Limits of a header that is believed at all.
inline constexpr uint64_t kGgufKeysMax = 65'536;
inline constexpr uint64_t kGgufTensorsMax = 65'536;
inline constexpr uint64_t kGgufKeyBytesMax = 65'535;
inline constexpr uint64_t kGgufTensorNameBytesMax = 64;
inline constexpr uint64_t kGgufHeaderBytesMax = 128 << 20;
inline constexpr int32_t kGgufArrayDepthMax = 3;
inline constexpr uint64_t kGgufAlignmentMin = 8;
inline constexpr uint64_t kGgufAlignmentMax = 65'536;

// `file` is the name for messages. The result views `bytes`. Fails with kInvalidRequest. Never
// reads tensor bytes.
absl::StatusOr<GgufHeader> ParseGgufHeader(const std::string& file,
                                           std::span<const std::byte> bytes);

}  // namespace shardline
