#include "kernels/cpu/matmul_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_float-inl.h"
#include "kernels/cpu/matmul_rows-inl.h"

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

template <WeightFormat kFormat>
struct Kernels {
  template <int kRows>
  static constexpr TileKernel kTile = MultiplyFloat<kFormat, kRows>;
};

TileKernel ChosenFloatTile(WeightFormat format, int padded_rows) {
  switch (format) {
    case WeightFormat::kF32:
      return ForRows<Kernels<WeightFormat::kF32>>(padded_rows);
    case WeightFormat::kF16:
      return ForRows<Kernels<WeightFormat::kF16>>(padded_rows);
    case WeightFormat::kBF16:
      return ForRows<Kernels<WeightFormat::kBF16>>(padded_rows);
    default:
      return nullptr;
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(ChosenFloatTile);

TileKernel FloatTile(WeightFormat format, int padded_rows) {
  return HWY_DYNAMIC_DISPATCH(ChosenFloatTile)(format, padded_rows);
}

}  // namespace shardline::cpu
#endif
