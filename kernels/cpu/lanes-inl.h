// Sixteen float lanes on every target: one AVX-512 vector, two of AVX2, four narrower ones. What is
// written in lanes does the same float operations in the same order everywhere.
//
// Included once for each target, by foreach_target.h.

#if defined(SHARDLINE_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_LANES_INL_H_
#undef SHARDLINE_KERNELS_CPU_LANES_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_LANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/exp_constants.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;

inline constexpr size_t kWidth = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;
inline constexpr size_t kParts = 16 / kWidth;

struct Lanes {
  FloatVec part[kParts];
};

HWY_INLINE Lanes ZeroLanes() {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Zero(FloatTag());
  return r;
}

HWY_INLINE Lanes SetLanes(float value) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Set(FloatTag(), value);
  return r;
}

HWY_INLINE Lanes LoadLanes(const float* from) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::LoadU(FloatTag(), from + i * kWidth);
  return r;
}

// The first `count` < 16 floats; the other lanes are zero and their memory is not read.
HWY_INLINE Lanes LoadLanesPartial(const float* from, size_t count) {
  alignas(64) float padded[16] = {};
  std::memcpy(padded, from, count * sizeof(float));
  return LoadLanes(padded);
}

HWY_INLINE void StoreLanes(const Lanes& a, float* to) {
  for (size_t i = 0; i < kParts; ++i) hn::StoreU(a.part[i], FloatTag(), to + i * kWidth);
}

HWY_INLINE void StoreLanesPartial(const Lanes& a, float* to, size_t count) {
  alignas(64) float padded[16];
  StoreLanes(a, padded);
  std::memcpy(to, padded, count * sizeof(float));
}

// Sixteen halves, exactly.
HWY_INLINE Lanes LoadHalfLanes(const uint16_t* from) {
  Lanes r;
  const hwy::float16_t* halves = reinterpret_cast<const hwy::float16_t*>(from);
  for (size_t i = 0; i < kParts; ++i) {
    r.part[i] = hn::PromoteTo(FloatTag(), hn::LoadU(HalfTag(), halves + i * kWidth));
  }
  return r;
}

// Nearest-even.
HWY_INLINE void StoreHalfLanes(const Lanes& a, uint16_t* to) {
  hwy::float16_t* halves = reinterpret_cast<hwy::float16_t*>(to);
  for (size_t i = 0; i < kParts; ++i) {
    hn::StoreU(hn::DemoteTo(HalfTag(), a.part[i]), HalfTag(), halves + i * kWidth);
  }
}

HWY_INLINE Lanes Add(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Add(a.part[i], b.part[i]);
  return r;
}

HWY_INLINE Lanes Mul(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Mul(a.part[i], b.part[i]);
  return r;
}

HWY_INLINE Lanes Div(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Div(a.part[i], b.part[i]);
  return r;
}

// fma(a, b, c), one rounding.
HWY_INLINE Lanes MulAdd(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return r;
}

HWY_INLINE Lanes Max(const Lanes& a, const Lanes& b) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = hn::Max(a.part[i], b.part[i]);
  return r;
}

HWY_INLINE float SumLanes(const Lanes& a) {
  alignas(64) float lane[16];
  StoreLanes(a, lane);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] + lane[i + width];
  }
  return lane[0];
}

HWY_INLINE float MaxLanes16(const Lanes& a) {
  FloatVec m = a.part[0];
  for (size_t i = 1; i < kParts; ++i) m = hn::Max(m, a.part[i]);
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), m));
}

// e^x for x <= 0 (kernels/NUMERICS.md, section "exp").
HWY_INLINE FloatVec ExpNonPositive(FloatVec x) {
  namespace c = exp_constants;
  const FloatTag d;
  const FloatVec round = hn::Set(d, c::kRoundToInteger);
  const FloatVec shifted = hn::MulAdd(x, hn::Set(d, c::kLog2E), round);
  const FloatVec n = hn::Sub(shifted, round);
  FloatVec r = hn::MulAdd(n, hn::Set(d, -c::kLn2High), x);
  r = hn::MulAdd(n, hn::Set(d, -c::kLn2Low), r);
  FloatVec p = hn::Set(d, c::kC6);
  p = hn::MulAdd(p, r, hn::Set(d, c::kC5));
  p = hn::MulAdd(p, r, hn::Set(d, c::kC4));
  p = hn::MulAdd(p, r, hn::Set(d, c::kC3));
  p = hn::MulAdd(p, r, hn::Set(d, c::kC2));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const BitsTag bits;
  const FloatVec power = hn::BitCast(
      d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted)), hn::Set(bits, 0x3f800000u)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, c::kUnderflow)), hn::Mul(p, power));
}

HWY_INLINE Lanes ExpNonPositive(const Lanes& x) {
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) r.part[i] = ExpNonPositive(x.part[i]);
  return r;
}

HWY_INLINE float ExpNonPositive(float x) {
  return hn::GetLane(ExpNonPositive(hn::Set(FloatTag(), x)));
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
