#pragma once

// The kernels' three translation units, as matmul_kernels.cc sees them.

#include "kernels/cpu/matmul_kernels.h"

namespace shardline::cpu {

TileKernel BlockTile(WeightFormat format, int padded_rows);       // q8_0, q4_0, q4_1, q5_0, q5_1
TileKernel SuperBlockTile(WeightFormat format, int padded_rows);  // q4_k, q5_k, q6_k
TileKernel FloatTile(WeightFormat format, int padded_rows);       // f32, f16, bf16

// bf16 by the CPU's own pair instruction: activations are kPairedBF16. Bits equal FloatTile's.
bool HasPairedBf16();
TileKernel PairedBf16Tile(int padded_rows);

}  // namespace shardline::cpu
