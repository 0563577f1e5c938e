// Which tile sizes have a kernel of their own, per Highway target.

#include "kernels/cpu/matmul_simd-inl.h"

#if defined(SHARDLINE_KERNELS_CPU_MATMUL_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_MATMUL_ROWS_INL_H_
#undef SHARDLINE_KERNELS_CPU_MATMUL_ROWS_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_MATMUL_ROWS_INL_H_
#endif

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

// The next size that has a kernel. REQUIRES: 1 <= rows <= kTileRows.
inline int PaddedRows(int rows) {
  if (rows <= 4) return kTileRows == 4 && rows == 3 ? 4 : rows;
  if (rows <= 6) return 6;
  return rows <= 8 ? 8 : rows <= 12 ? 12 : 16;
}

// Family::kTile<rows>.
template <typename Family>
TileKernel ForRows(int padded_rows) {
  if (padded_rows == 1) return Family::template kTile<1>;
  if (padded_rows == 2) return Family::template kTile<2>;
  if constexpr (kTileRows > 4) {
    if (padded_rows == 3) return Family::template kTile<3>;
    if (padded_rows == 6) return Family::template kTile<6>;
    if (padded_rows == 8) return Family::template kTile<8>;
    if (padded_rows == 12) return Family::template kTile<12>;
    if (padded_rows == 16) return Family::template kTile<16>;
  }
  return Family::template kTile<4>;
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
