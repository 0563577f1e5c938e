#pragma once

// out[r, i] = silu(gate[r, i]) * up[r, i], with silu(x) = x / (1 + exp(-x)).
//
// The exponential is our own (kernels/NUMERICS.md, section "exp"): the same bits on every target.

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device_stream.h"

namespace shardline {

struct SwiGluArgs {
  const float* gate = nullptr;  // [rows, dim], rows gate_stride floats apart.
  const float* up = nullptr;    // [rows, dim], rows up_stride floats apart.
  float* out = nullptr;         // [rows, dim], rows out_stride apart. May be gate or up.
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t gate_stride = 0;
  int64_t up_stride = 0;
  int64_t out_stride = 0;
};

namespace cpu {
absl::Status SwiGlu(const SwiGluArgs& args, DeviceStream stream);
}
namespace ref {
absl::Status SwiGlu(const SwiGluArgs& args, DeviceStream stream);
}

}  // namespace shardline
