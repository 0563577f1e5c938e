// The kernels of the float weight formats: one fma a k (or two a bf16 pair) and lane.

#include "kernels/cpu/matmul_simd-inl.h"
#include "kernels/cpu/panel_layout.h"

#if defined(SHARDLINE_KERNELS_CPU_MATMUL_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_MATMUL_FLOAT_INL_H_
#undef SHARDLINE_KERNELS_CPU_MATMUL_FLOAT_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_MATMUL_FLOAT_INL_H_
#endif

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

template <WeightFormat kFormat, int kRows>
void MultiplyFloat(const uint8_t* HWY_RESTRICT panel, const uint8_t* HWY_RESTRICT x, int64_t k,
                   float* HWY_RESTRICT out) {
  constexpr panel::Layout kLayout = panel::LayoutOf(kFormat);
  constexpr int kLaneBytes = kLayout.record_bytes / 16;
  const int64_t records = (k + kLayout.record_k - 1) / kLayout.record_k;
  const auto* rows = reinterpret_cast<const float*>(x);

  for (int half = 0; half < kHalves; ++half) {
    VF acc[kRows];
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) acc[r] = ZeroF();
    const uint8_t* record = panel + kLaneBytes * kWidth * half;
    const float* at = rows;
    for (int64_t i = 0; i < records; ++i) {
      if constexpr (kFormat == WeightFormat::kBF16) {  // Odd k first, then even.
        const VI pair = LoadI(record);
        const VF odd = BitsF(And(pair, SetI32(static_cast<int32_t>(0xffff0000u))));
        const VF even = BitsF(ShiftLeft32By16(pair));
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          acc[r] = Fma(odd, SetF(at[kRows + r]), acc[r]);
          acc[r] = Fma(even, SetF(at[r]), acc[r]);
        }
      } else {
        const VF w = kFormat == WeightFormat::kF16 ? LoadF16(record) : LoadF(record);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) acc[r] = Fma(w, SetF(at[r]), acc[r]);
      }
      record += kLayout.record_bytes;
      at += kRows * kLayout.record_k;
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) StoreF(acc[r], out + 16 * r + kWidth * half);
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
