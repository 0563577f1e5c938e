#include "kernels/cpu/matmul_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_super_block.cc"
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

TileKernel ChosenSuperBlockTile(WeightFormat format, int padded_rows) {
  switch (format) {
    case WeightFormat::kQ4_K:
      return ForRows<Kernels<WeightFormat::kQ4_K>>(padded_rows);
    case WeightFormat::kQ5_K:
      return ForRows<Kernels<WeightFormat::kQ5_K>>(padded_rows);
    case WeightFormat::kQ6_K:
      return ForRows<Kernels<WeightFormat::kQ6_K>>(padded_rows);
    default:
      return nullptr;
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(ChosenSuperBlockTile);

TileKernel SuperBlockTile(WeightFormat format, int padded_rows) {
  return HWY_DYNAMIC_DISPATCH(ChosenSuperBlockTile)(format, padded_rows);
}

}  // namespace shardline::cpu
#endif
