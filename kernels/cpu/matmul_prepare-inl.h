// Activations as the kernels want them: quantised to int8 blocks of 32 anchored at k = 0, or
// rounded to bf16, and interleaved by rows of a tile (kernels/cpu/matmul_kernels.h).

#include <cstring>

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/matmul_simd-inl.h"
#include "kernels/cpu/panel_layout.h"

#if defined(SHARDLINE_KERNELS_CPU_MATMUL_PREPARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_MATMUL_PREPARE_INL_H_
#undef SHARDLINE_KERNELS_CPU_MATMUL_PREPARE_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_MATMUL_PREPARE_INL_H_
#endif

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

struct QuantisedBlock {
  alignas(64) int8_t q[32];
  float d;
  int32_t sum_first;  // Of q[0..16).
  int32_t sum_last;
};

HWY_INLINE uint32_t BitsOf(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HWY_INLINE float FloatOf(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The canonical quantiser of kernels/NUMERICS.md.
HWY_INLINE void QuantiseBlock(const float* HWY_RESTRICT x, QuantisedBlock& out) {
  // Magnitudes compare as integers, NaN above infinity; so a NaN cannot hide in a maximum.
  uint32_t most = 0;
  for (int i = 0; i < 32; ++i) {
    const uint32_t magnitude = BitsOf(x[i]) & 0x7fffffff;
    most = most > magnitude ? most : magnitude;
  }
  out.sum_first = out.sum_last = 0;
  constexpr uint32_t kInfinity = 0x7f800000;
  constexpr uint32_t kTiniest = 0x0d800000;  // 2^-100: below, 127 / amax would overflow.
  if (most < kTiniest || most >= kInfinity) {
    std::memset(out.q, 0, sizeof(out.q));
    out.d = most < kTiniest ? 0.0f : FloatOf(0x7fc00000);  // The result is NaN, as it should be.
    return;
  }
  const float amax = FloatOf(most);
  out.d = amax / 127.0f;
  const float inverse = 127.0f / amax;
  // Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits of the sum.
  constexpr float kRounder = 12582912.0f;
  int32_t q[32];
  for (int i = 0; i < 32; ++i) {
    q[i] = static_cast<int32_t>(BitsOf(x[i] * inverse + kRounder) - 0x4b400000u);
  }
  int32_t first = 0;
  int32_t last = 0;
  for (int i = 0; i < 16; ++i) {
    first += q[i];
    last += q[i + 16];
  }
  for (int i = 0; i < 32; ++i) out.q[i] = static_cast<int8_t>(q[i]);
  out.sum_first = first;
  out.sum_last = last;
}

template <typename T>
HWY_INLINE void StoreScalar(T value, uint8_t* to) {
  __builtin_memcpy(to, &value, sizeof(value));
}

inline void PrepareQuantisedRow(ActivationKind kind, const float* HWY_RESTRICT x, int64_t k,
                                int row, int padded_rows, uint8_t* HWY_RESTRICT out) {
  const int64_t block_bytes = padded_rows * (kind == ActivationKind::kHalves ? 44 : 40);
  for (int64_t block = 0; block < k / panel::kBlock; ++block) {
    QuantisedBlock value;
    QuantiseBlock(x + block * panel::kBlock, value);
    uint8_t* to = out + block * block_bytes;
    std::memcpy(to + 32 * row, value.q, 32);
    StoreScalar(value.d, to + 32 * padded_rows + 4 * row);
    uint8_t* extra = to + 36 * padded_rows + 4 * row;
    const int32_t sum = value.sum_first + value.sum_last;
    switch (kind) {
      case ActivationKind::kOffset128:
        StoreScalar(-128 * sum, extra);
        break;
      case ActivationKind::kOffset8:
        StoreScalar(-8 * sum, extra);
        break;
      case ActivationKind::kOffset16:
        StoreScalar(-16 * sum, extra);
        break;
      case ActivationKind::kHalves:
        StoreScalar(-32 * value.sum_first, extra);
        StoreScalar(-32 * value.sum_last, extra + 4 * padded_rows);
        break;
      default:
        StoreScalar(value.d * static_cast<float>(sum), extra);
        break;
    }
  }
}

// The upper 16 bits of the float, rounded to nearest even; a NaN stays one.
HWY_INLINE uint32_t RoundToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline void PrepareFloatRow(ActivationKind kind, const float* HWY_RESTRICT x, int64_t k, int row,
                            int padded_rows, uint8_t* HWY_RESTRICT out) {
  if (kind == ActivationKind::kF32) {
    for (int64_t i = 0; i < k; ++i) StoreScalar(x[i], out + 4 * (i * padded_rows + row));
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    const uint32_t rounded = RoundToBf16(x[i]);
    if (kind == ActivationKind::kRoundedBF16) {
      StoreScalar(rounded << 16, out + 4 * (i * padded_rows + row));
    } else {
      uint8_t* pair = out + 4 * (i / 2 * padded_rows + row);
      StoreScalar(static_cast<uint16_t>(rounded), pair + 2 * (i % 2));
    }
  }
}

inline void PrepareTile(ActivationKind kind, const float* x, int64_t x_stride, int rows,
                        int padded_rows, int64_t k, uint8_t* out) {
  const bool quantised = kind < ActivationKind::kF32;
  if (rows < padded_rows || (!quantised && k % 2 != 0)) {
    std::memset(out, 0, static_cast<size_t>(padded_rows * ActivationBytes(kind, k)));
  }
  for (int row = 0; row < rows; ++row) {
    if (quantised) {
      PrepareQuantisedRow(kind, x + row * x_stride, k, row, padded_rows, out);
    } else {
      PrepareFloatRow(kind, x + row * x_stride, k, row, padded_rows, out);
    }
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
