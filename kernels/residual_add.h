#pragma once

// hidden[r, i] += delta[r, i]: closes a residual branch. One addition an element.

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device_stream.h"

namespace shardline {

struct ResidualAddArgs {
  float* hidden = nullptr;       // [rows, dim], rows hidden_stride floats apart.
  const float* delta = nullptr;  // [rows, dim], rows delta_stride floats apart.
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t hidden_stride = 0;
  int64_t delta_stride = 0;
};

namespace cpu {
absl::Status ResidualAdd(const ResidualAddArgs& args, DeviceStream stream);
}
namespace ref {
absl::Status ResidualAdd(const ResidualAddArgs& args, DeviceStream stream);
}

}  // namespace shardline
