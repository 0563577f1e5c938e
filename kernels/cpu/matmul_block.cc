#include "kernels/cpu/matmul_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_quantised-inl.h"
#include "kernels/cpu/matmul_rows-inl.h"

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

template <WeightFormat kFormat>
struct Kernels {
  template <int kRows>
  static constexpr TileKernel kTile = MultiplyQuantised<kFormat, kRows>;
};

TileKernel ChosenBlockTile(WeightFormat format, int padded_rows) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return ForRows<Kernels<WeightFormat::kQ8_0>>(padded_rows);
    case WeightFormat::kQ4_0:
      return ForRows<Kernels<WeightFormat::kQ4_0>>(padded_rows);
    case WeightFormat::kQ4_1:
      return ForRows<Kernels<WeightFormat::kQ4_1>>(padded_rows);
    case WeightFormat::kQ5_0:
      return ForRows<Kernels<WeightFormat::kQ5_0>>(padded_rows);
    case WeightFormat::kQ5_1:
      return ForRows<Kernels<WeightFormat::kQ5_1>>(padded_rows);
    default:
      return nullptr;
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(ChosenBlockTile);

TileKernel BlockTile(WeightFormat format, int padded_rows) {
  return HWY_DYNAMIC_DISPATCH(ChosenBlockTile)(format, padded_rows);
}

}  // namespace shardline::cpu
#endif
