#pragma once

// out = x * W^T for one or more packed weights that share their input.
//
// Every output element is one chain of float operations in the order of K, defined per weight
// format in kernels/NUMERICS.md. Its bits do not depend on how many rows run together, on the
// number of threads, or on the instruction set; kernels/ref has the plain loops that say so.

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/device_stream.h"
#include "kernels/packed_weight.h"

namespace shardline {

struct MatmulPart {
  const PackedWeight* weight = nullptr;  // [n, k]
  const float* bias = nullptr;           // [n]; none if null.
  float* out = nullptr;                  // [rows, n], rows out_stride floats apart.
  int64_t out_stride = 0;
  bool accumulate = false;  // out += result (a residual) instead of out = result.
};

struct MatmulArgs {
  const float* x = nullptr;  // [rows, k], rows x_stride floats apart.
  int64_t x_stride = 0;
  int64_t rows = 0;
  std::span<const MatmulPart> parts;  // All of one k: Q, K and V, or gate and up.

  // Room for the quantised activations: MatmulScratchBytes(args), 64-byte aligned.
  std::byte* scratch = nullptr;
  size_t scratch_bytes = 0;
};

// Reads only `rows` and the weights' shapes and formats, grows with `rows`: ask once for the most
// rows, at start-up.
size_t MatmulScratchBytes(const MatmulArgs& args);

namespace cpu {

// REQUIRES: outputs overlap neither each other nor x. Fails with kInvalidRequest when weights
// differ in k or the scratch is too small.
absl::Status Matmul(const MatmulArgs& args, DeviceStream stream);

}  // namespace cpu

namespace ref {

// The specification: plain loops, needs no scratch and no pool.
absl::Status Matmul(const MatmulArgs& args, DeviceStream stream);

}  // namespace ref
}  // namespace shardline
