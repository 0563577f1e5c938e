#pragma once

// Weight matrices as a model file would hold them, made up, with a plain decoder: the tests' own
// reading of the GGUF block layouts, independent of kernels/.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/weight_format.h"

namespace shardline::testing {

inline constexpr WeightFormat kAllFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,  WeightFormat::kBF16, WeightFormat::kQ8_0,
    WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_0, WeightFormat::kQ5_1,
    WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K,
};

enum class Content {
  kOrdinary,   // Random quants, scales around 0.01.
  kLowest,     // Every quant the lowest or (one in four) the highest there is.
  kZeroScale,  // Every other block has scale and minimum 0.
  kDenormal,   // f16 scales and bf16/f32 weights in the denormal range, or close above.
  kHuge,       // The largest f16 scales.
};

// n rows of k elements. REQUIRES: k is whole blocks.
std::vector<std::byte> MakeWeightFile(WeightFormat format, int64_t n, int64_t k, Content content,
                                      std::mt19937& random);

// The row's values, exact in double.
std::vector<double> DecodeRow(WeightFormat format, int64_t k, const std::byte* row);

int64_t RowBytes(WeightFormat format, int64_t k);

}  // namespace shardline::testing
