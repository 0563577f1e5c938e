#pragma once

// One lane's view of one 32-element block of a panel: what the packer writes, and what the
// reference and DequantizeRow read back.

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace shardline::panel {

// value(k) = scale(k) * (quants[k] - offset) + minimum, with scale(k) = d * sub[k / 16].
struct Block {
  uint8_t quants[32];  // Unsigned as stored.
  uint16_t d;          // f16 bits.
  uint16_t m;          // f16 bits; of the minimum (q4_1, q5_1: added) or its unit (K: subtracted).
  int8_t sub[2];       // Scale of either half in units of d; both 1 without sub-scales.
  uint8_t sub_m;       // Minimum in units of m (K-quants).
};

// Block `block` (of 32 k) of lane `lane`. REQUIRES: IsQuantised(format).
void WriteBlock(WeightFormat format, int64_t block, int64_t lane, const Block& value,
                std::byte* panel);
Block ReadBlock(WeightFormat format, int64_t block, int64_t lane, const std::byte* panel);

// Element `k` of lane `lane` of a float format, widened exactly.
float ReadFloat(WeightFormat format, int64_t k, int64_t lane, const std::byte* panel);

// f16 bits as a float, exactly; a signalling NaN comes out quiet.
float FloatOfF16(uint16_t bits);

}  // namespace shardline::panel
