// bf16 weights with AVX512_BF16: one VDPBF16PS a pair and row.
//
// The instruction computes fma(even, fma(odd, acc)) in fp32 with denormals flushed on every CPU
// that has it, which is the canonical arithmetic; the tests compare it with FloatTile's bits.

#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/cpu/matmul_tables.h"

namespace shardline::cpu {

bool HasPairedBf16() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512f");
  return has;
}

namespace {

#define SL_PAIRED_BF16 __attribute__((target("avx512f,avx512bf16")))

template <int kRows>
SL_PAIRED_BF16 void Multiply(const uint8_t* HWY_RESTRICT panel, const uint8_t* HWY_RESTRICT x,
                             int64_t k, float* HWY_RESTRICT out) {
  __m512 acc[kRows];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (int64_t pair = 0; pair < (k + 1) / 2; ++pair) {
    const auto w = (__m512bh)_mm512_loadu_si512(panel + 64 * pair);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      int32_t two;
      __builtin_memcpy(&two, x + 4 * (pair * kRows + r), sizeof(two));
      acc[r] = _mm512_dpbf16_ps(acc[r], w, (__m512bh)_mm512_set1_epi32(two));
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + 16 * r, acc[r]);
}

#undef SL_PAIRED_BF16

}  // namespace

TileKernel PairedBf16Tile(int padded_rows) {
  switch (padded_rows) {
    case 1:
      return Multiply<1>;
    case 2:
      return Multiply<2>;
    case 3:
      return Multiply<3>;
    case 4:
      return Multiply<4>;
    case 6:
      return Multiply<6>;
    case 8:
      return Multiply<8>;
    case 12:
      return Multiply<12>;
    default:
      return Multiply<16>;
  }
}

}  // namespace shardline::cpu
