#pragma once

// Is every element finite? The guard between a stage's output and the wire: a NaN or an infinity
// is reported by row and never forwarded.

#include <cstdint>

#include "kernels/device_stream.h"

namespace shardline {

struct FiniteArgs {
  const float* x = nullptr;  // [rows, dim], rows x_stride floats apart.
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t x_stride = 0;
};

namespace cpu {
// Index of the first row that holds a NaN or an infinity; -1 when there is none.
int64_t FirstNonFiniteRow(const FiniteArgs& args, DeviceStream stream);
}  // namespace cpu
namespace ref {
int64_t FirstNonFiniteRow(const FiniteArgs& args, DeviceStream stream);
}

}  // namespace shardline
