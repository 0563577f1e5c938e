#pragma once

// Constants of our exponential (kernels/NUMERICS.md, section "exp"), shared by every back end.

namespace shardline::exp_constants {

inline constexpr float kUnderflow = -87.0f;  // Below it the result is zero.
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23
inline constexpr float kLn2High = 0x1.62p-1f;          // 9 bits: n * kLn2High is exact.
inline constexpr float kLn2Low = 0x1.c85fe0p-10f;
// e^r = 1 + r + r^2 (kC2 + kC3 r + kC4 r^2 + kC5 r^3 + kC6 r^4) on |r| <= ln2 / 2; the polynomial
// interpolates at Chebyshev nodes, relative error 1.1e-8 before rounding.
inline constexpr float kC2 = 0.5f;
inline constexpr float kC3 = 0x1.5554dcp-3f;
inline constexpr float kC4 = 0x1.55551ap-5f;
inline constexpr float kC5 = 0x1.120b6ep-7f;
inline constexpr float kC6 = 0x1.6d110ap-10f;

}  // namespace shardline::exp_constants
