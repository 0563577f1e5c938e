#pragma once

// IEEE binary16, one value at a time: the specification of every f16 conversion. Denormal halves
// are kept in both directions, whatever the denormal mode of the thread.

#include <bit>
#include <cstdint>

namespace shardline {

// Exact.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) |
                                (fraction != 0 ? 0x400000u : 0u));
  }
  if (exponent == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((fraction & 0x400u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    fraction &= 0x3ffu;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Nearest, ties to even. Too large becomes infinity; a NaN stays a (quiet) NaN.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  const int32_t exponent = static_cast<int32_t>(magnitude >> 23);
  if (exponent < 102) return sign;  // Below half of the least denormal.
  uint32_t rounded;
  uint32_t dropped_bits;
  if (exponent >= 113) {
    rounded = magnitude - (112u << 23);
    dropped_bits = 13;
  } else {
    rounded = (magnitude & 0x7fffffu) | 0x800000u;
    dropped_bits = static_cast<uint32_t>(126 - exponent);
  }
  const uint32_t tie = 1u << (dropped_bits - 1);
  const uint32_t dropped = rounded & ((1u << dropped_bits) - 1);
  rounded >>= dropped_bits;
  if (dropped > tie || (dropped == tie && (rounded & 1u) != 0)) ++rounded;
  return static_cast<uint16_t>(sign | rounded);
}

}  // namespace shardline
