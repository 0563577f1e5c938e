// The few vector words the matmul kernels are written in, once per Highway target.
//
// Intrinsics rather than Highway's own ops: Highway 1.0.3 has no byte dot product, and its
// AVX3_DL namespace enables AVX-VNNI, which CPUs with AVX-512-VNNI need not have.

#include <immintrin.h>

#include <cstdint>

#include "hwy/highway.h"

#if defined(SHARDLINE_KERNELS_CPU_MATMUL_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_MATMUL_SIMD_INL_H_
#undef SHARDLINE_KERNELS_CPU_MATMUL_SIMD_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_MATMUL_SIMD_INL_H_
#endif

#undef SL_BEFORE_SIMD
#if HWY_TARGET == HWY_AVX3_DL
#define SL_BEFORE_SIMD()                                 \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR_AVX3 ",avx512vnni") \
  static_assert(true, "For requiring trailing semicolon")
#else
#define SL_BEFORE_SIMD() HWY_BEFORE_NAMESPACE()
#endif

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

using VI = __m512i;
using VF = __m512;
inline constexpr int kWidth = 16;     // Lanes of a vector: a whole panel.
inline constexpr int kTileRows = 16;  // What 32 registers hold beside 8 of weights.

HWY_INLINE VI LoadI(const uint8_t* from) { return _mm512_loadu_si512(from); }
HWY_INLINE VI SetI8(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
HWY_INLINE VI SetI32(int32_t value) { return _mm512_set1_epi32(value); }
HWY_INLINE VI And(VI a, VI b) { return _mm512_and_si512(a, b); }
HWY_INLINE VI Or(VI a, VI b) { return _mm512_or_si512(a, b); }
HWY_INLINE VI Xor(VI a, VI b) { return _mm512_xor_si512(a, b); }
template <int kBits>
HWY_INLINE VI ShiftLeft16(VI a) {
  return _mm512_slli_epi16(a, kBits);
}
template <int kBits>
HWY_INLINE VI ShiftRight16(VI a) {
  return _mm512_srli_epi16(a, kBits);
}
HWY_INLINE VI Add16(VI a, VI b) { return _mm512_add_epi16(a, b); }
HWY_INLINE VI Add32(VI a, VI b) { return _mm512_add_epi32(a, b); }
HWY_INLINE VI Mul32(VI a, VI b) { return _mm512_mullo_epi32(a, b); }
HWY_INLINE VI WidenI8(const uint8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
HWY_INLINE VI WidenU8(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
HWY_INLINE VI PairSums(VI u8, VI s8) { return _mm512_maddubs_epi16(u8, s8); }
HWY_INLINE VI WidenPairs(VI s16) { return _mm512_madd_epi16(s16, _mm512_set1_epi16(1)); }
HWY_INLINE VI Abs8(VI a) { return _mm512_abs_epi8(a); }
HWY_INLINE VI WithSignOf8(VI a, VI sign) {  // Where sign is 0 the product is 0 anyway.
  return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(sign), _mm512_setzero_si512(), a);
}

HWY_INLINE VF ZeroF() { return _mm512_setzero_ps(); }
HWY_INLINE VF SetF(float value) { return _mm512_set1_ps(value); }
HWY_INLINE VF LoadF(const uint8_t* from) { return _mm512_loadu_ps(from); }
HWY_INLINE VF LoadF16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
HWY_INLINE void StoreF(VF a, float* to) { _mm512_storeu_ps(to, a); }
HWY_INLINE VF ToFloat(VI a) { return _mm512_cvtepi32_ps(a); }
HWY_INLINE VF BitsF(VI a) { return _mm512_castsi512_ps(a); }
HWY_INLINE VI ShiftLeft32By16(VI a) { return _mm512_slli_epi32(a, 16); }
HWY_INLINE VF MulF(VF a, VF b) { return _mm512_mul_ps(a, b); }
HWY_INLINE VF Fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
HWY_INLINE VF NegFma(VF a, VF b, VF c) { return _mm512_fnmadd_ps(a, b, c); }

#else  // AVX2

using VI = __m256i;
using VF = __m256;
inline constexpr int kWidth = 8;     // Half a panel.
inline constexpr int kTileRows = 4;  // What 16 registers hold.

HWY_INLINE VI LoadI(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HWY_INLINE VI SetI8(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
HWY_INLINE VI SetI32(int32_t value) { return _mm256_set1_epi32(value); }
HWY_INLINE VI And(VI a, VI b) { return _mm256_and_si256(a, b); }
HWY_INLINE VI Or(VI a, VI b) { return _mm256_or_si256(a, b); }
HWY_INLINE VI Xor(VI a, VI b) { return _mm256_xor_si256(a, b); }
template <int kBits>
HWY_INLINE VI ShiftLeft16(VI a) {
  return _mm256_slli_epi16(a, kBits);
}
template <int kBits>
HWY_INLINE VI ShiftRight16(VI a) {
  return _mm256_srli_epi16(a, kBits);
}
HWY_INLINE VI Add16(VI a, VI b) { return _mm256_add_epi16(a, b); }
HWY_INLINE VI Add32(VI a, VI b) { return _mm256_add_epi32(a, b); }
HWY_INLINE VI Mul32(VI a, VI b) { return _mm256_mullo_epi32(a, b); }
HWY_INLINE VI WidenI8(const uint8_t* from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
HWY_INLINE VI WidenU8(const uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
HWY_INLINE VI PairSums(VI u8, VI s8) { return _mm256_maddubs_epi16(u8, s8); }
HWY_INLINE VI WidenPairs(VI s16) { return _mm256_madd_epi16(s16, _mm256_set1_epi16(1)); }
HWY_INLINE VI Abs8(VI a) { return _mm256_abs_epi8(a); }
HWY_INLINE VI WithSignOf8(VI a, VI sign) { return _mm256_sign_epi8(a, sign); }

HWY_INLINE VF ZeroF() { return _mm256_setzero_ps(); }
HWY_INLINE VF SetF(float value) { return _mm256_set1_ps(value); }
HWY_INLINE VF LoadF(const uint8_t* from) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
}
HWY_INLINE VF LoadF16(const uint8_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
HWY_INLINE void StoreF(VF a, float* to) { _mm256_storeu_ps(to, a); }
HWY_INLINE VF ToFloat(VI a) { return _mm256_cvtepi32_ps(a); }
HWY_INLINE VF BitsF(VI a) { return _mm256_castsi256_ps(a); }
HWY_INLINE VI ShiftLeft32By16(VI a) { return _mm256_slli_epi32(a, 16); }
HWY_INLINE VF MulF(VF a, VF b) { return _mm256_mul_ps(a, b); }
HWY_INLINE VF Fma(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
HWY_INLINE VF NegFma(VF a, VF b, VF c) { return _mm256_fnmadd_ps(a, b, c); }

#endif

inline constexpr int kHalves = 16 / kWidth;

// Four activations, in every lane.
HWY_INLINE VI BroadcastGroup(const uint8_t* q, int group) {
  int32_t four;
  __builtin_memcpy(&four, q + 4 * group, sizeof(four));
  return SetI32(four);
}

// sum + the dot products, per lane, of groups [0, kGroups) with the activations at `q`: exact.
//
// kBits is what the unsigned weights have. Without VNNI two products are summed in 16 bits, which
// must not saturate: 2 * 63 * 127 fits, and for fewer bits several groups fit before widening.
// Eight-bit weights do not (2 * 255 * 127): there `sum` must be -128 * sum(q) as always, and the
// weights are taken as the signed numbers they encode, |w| <= 128 times +-127.
template <int kBits, int kGroups>
HWY_INLINE VI Dot(const VI* HWY_RESTRICT w, const uint8_t* HWY_RESTRICT q, VI sum) {
#if HWY_TARGET == HWY_AVX3_DL
  HWY_UNROLL(8)
  for (int g = 0; g < kGroups; ++g) sum = _mm512_dpbusd_epi32(sum, w[g], BroadcastGroup(q, g));
  return sum;
#else
  if constexpr (kBits == 8) {
    // The signed products miss the 128 * q that the caller takes off through `sum`: leave it out.
    VI total = SetI32(0);
    HWY_UNROLL(8)
    for (int g = 0; g < kGroups; ++g) {
      const VI w_signed = Xor(w[g], SetI8(0x80));
      const VI products = PairSums(Abs8(w_signed), WithSignOf8(BroadcastGroup(q, g), w_signed));
      total = Add32(total, WidenPairs(products));
    }
    return total;
  } else {
    constexpr int kTogether = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;
    static_assert(((1 << kBits) - 1) * 127 * 2 * kTogether <= 32767);
    HWY_UNROLL(8)
    for (int g = 0; g < kGroups; g += kTogether) {
      VI sum16 = PairSums(w[g], BroadcastGroup(q, g));
      HWY_UNROLL(8)
      for (int i = 1; i < kTogether && g + i < kGroups; ++i) {
        sum16 = Add16(sum16, PairSums(w[g + i], BroadcastGroup(q, g + i)));
      }
      sum = Add32(sum, WidenPairs(sum16));
    }
    return sum;
  }
#endif
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
