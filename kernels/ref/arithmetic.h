#pragma once

// The pieces of arithmetic that several operators share, in plain scalar C++. This is their
// specification; kernels/NUMERICS.md says it in words. Run under ScopedFlushDenormals.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/exp_constants.h"

namespace shardline::ref {

// e^x for x <= 0; NaN in, NaN out.
inline float ExpNonPositive(float x) {
  namespace c = exp_constants;
  const float shifted = std::fma(x, c::kLog2E, c::kRoundToInteger);
  const float n = shifted - c::kRoundToInteger;
  float r = std::fma(n, -c::kLn2High, x);
  r = std::fma(n, -c::kLn2Low, r);
  float p = c::kC6;
  p = std::fma(p, r, c::kC5);
  p = std::fma(p, r, c::kC4);
  p = std::fma(p, r, c::kC3);
  p = std::fma(p, r, c::kC2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  const float result = p * power;
  return x < c::kUnderflow ? 0.0f : result;
}

// x / (1 + e^-x), without overflow on either side.
inline float Silu(float x) {
  const float e = ExpNonPositive(-std::fabs(x));
  const float numerator = x < 0.0f ? x * e : x;
  return numerator / (1.0f + e);
}

// Sum of 16 lanes: lanes 8 apart, then 4, 2 and 1.
inline float SumLanes(std::array<float, 16> lanes) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

}  // namespace shardline::ref
