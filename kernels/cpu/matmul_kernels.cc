#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/matmul_tables.h"
#include "kernels/cpu/panel_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_prepare-inl.h"
#include "kernels/cpu/matmul_rows-inl.h"

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

ActivationKind KindOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      return ActivationKind::kF32;
    case WeightFormat::kBF16:
      return HWY_TARGET == HWY_AVX3_DL && HasPairedBf16() ? ActivationKind::kPairedBF16
                                                          : ActivationKind::kRoundedBF16;
    case WeightFormat::kQ8_0:
      return ActivationKind::kOffset128;
    case WeightFormat::kQ4_0:
      return ActivationKind::kOffset8;
    case WeightFormat::kQ5_0:
      return ActivationKind::kOffset16;
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
      return ActivationKind::kScaledSum;
    case WeightFormat::kQ6_K:
      return ActivationKind::kHalves;
  }
  return ActivationKind::kF32;
}

TileKernel TileFor(WeightFormat format, int padded_rows) {
  switch (format) {
    case WeightFormat::kBF16:
      if (KindOf(format) == ActivationKind::kPairedBF16) return PairedBf16Tile(padded_rows);
      [[fallthrough]];
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      return FloatTile(format, padded_rows);
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
    case WeightFormat::kQ6_K:
      return SuperBlockTile(format, padded_rows);
    default:
      return BlockTile(format, padded_rows);
  }
}

const MatmulKernels* Kernels() {
  static constexpr MatmulKernels kKernels = {.tile_rows = kTileRows,
                                             .padded_rows = PaddedRows,
                                             .kind = KindOf,
                                             .prepare = PrepareTile,
                                             .tile = TileFor};
  return &kKernels;
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(Kernels);

const MatmulKernels& ChosenMatmulKernels() { return *HWY_DYNAMIC_DISPATCH(Kernels)(); }

int64_t ActivationBytes(ActivationKind kind, int64_t k) {
  switch (kind) {
    case ActivationKind::kOffset128:
    case ActivationKind::kOffset8:
    case ActivationKind::kOffset16:
    case ActivationKind::kScaledSum:
      return k / panel::kBlock * 40;
    case ActivationKind::kHalves:
      return k / panel::kBlock * 44;
    case ActivationKind::kF32:
      return 4 * k;
    case ActivationKind::kRoundedBF16:
      return 4 * (k + k % 2);
    case ActivationKind::kPairedBF16:
      return 2 * (k + k % 2);
  }
  return 0;
}

}  // namespace shardline::cpu
#endif
