#pragma once

// How a weight matrix is stored in a model file, in the kernels' own words. Block layouts are
// those of the GGUF tensor types of the same names.

#include <cstdint>
#include <string_view>

namespace shardline {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct WeightFormatTraits {
  std::string_view name;   // "q4_k"
  int32_t block_elements;  // Consecutive elements of a row that share a block: 1, 32 or 256.
  int32_t block_bytes;     // Bytes of one block in the file.
};

const WeightFormatTraits& TraitsOf(WeightFormat format);

}  // namespace shardline
