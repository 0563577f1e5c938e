#pragma once

// The seam between the matmul launcher and the code compiled once per instruction set.
//
// Rows are cut into tiles; a tile's activations are prepared once, in the form its weights want,
// and a kernel multiplies one tile with one panel. Padding rows of a tile are zero.

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace shardline::cpu {

// What the kernels of a weight format read. A prepared tile of m rows is a sequence over K. The
// quantised kinds have per 32-block
//   int8 q[m][32], float d[m], then one of
//     int32 -offset * sum(q) [m]                         kOffset*
//     float d * sum(q) [m]                               kScaledSum
//     int32 -32 * sum(q) of either half, [2][m]          kHalves
// kF32 and kRoundedBF16 have per k: float [m]; kPairedBF16 per k pair: bf16 [m][2], even k first.
enum class ActivationKind : uint8_t {
  kOffset128,
  kOffset8,
  kOffset16,
  kScaledSum,
  kHalves,
  kF32,
  kRoundedBF16,
  kPairedBF16,
};
inline constexpr int kActivationKinds = 8;

// Bytes a row takes when prepared. REQUIRES: k is whole blocks for the quantised kinds.
int64_t ActivationBytes(ActivationKind kind, int64_t k);

// acc[row][lane] of one tile and one panel; float [m][16].
using TileKernel = void (*)(const uint8_t* panel, const uint8_t* activations, int64_t k,
                            float* acc);

struct MatmulKernels {
  int tile_rows;  // Most rows of a tile.

  // The tile size to use for `rows` rows, 1 <= rows <= tile_rows: the next one that has a kernel.
  int (*padded_rows)(int rows);

  ActivationKind (*kind)(WeightFormat format);

  // Prepares `rows` rows of x and zero rows up to `padded_rows`.
  void (*prepare)(ActivationKind kind, const float* x, int64_t x_stride, int rows, int padded_rows,
                  int64_t k, uint8_t* out);

  // REQUIRES: padded_rows came from the function above.
  TileKernel (*tile)(WeightFormat format, int padded_rows);
};

// Those of the best target this CPU has, or the one forced for a test.
const MatmulKernels& ChosenMatmulKernels();

}  // namespace shardline::cpu
