#pragma once

// Root mean square normalisation of rows, or of equal groups inside rows (per-head q and k norms).
//
//   y[i] = x[i] * (1 / sqrt(mean(x^2) + epsilon)) * weight[i]
//
// The order of every float operation is fixed in kernels/NUMERICS.md, section "RMSNorm".

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device_stream.h"

namespace shardline {

struct RmsNormArgs {
  const float* x = nullptr;       // [rows, groups, dim]; rows start x_stride floats apart.
  const float* weight = nullptr;  // [dim]
  float* y = nullptr;             // [rows, groups, dim]; rows y_stride apart. May be x.
  int64_t rows = 0;
  int64_t groups = 1;  // Normalised one by one with the same weight: heads, or 1.
  int64_t dim = 0;     // > 0
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  float epsilon = 0;
};

namespace cpu {
absl::Status RmsNorm(const RmsNormArgs& args, DeviceStream stream);
}
namespace ref {
absl::Status RmsNorm(const RmsNormArgs& args, DeviceStream stream);
}

}  // namespace shardline
