#pragma once

// The largest element of a row, and at the same look whether the row is fit to be sampled from.

#include <cstdint>

#include "kernels/device_stream.h"

namespace shardline {

struct Best {
  int64_t index = -1;  // The lowest of the largest; -1: an element is NaN or +infinity, or all are
  float value = 0;     // -infinity.
  friend bool operator==(const Best&, const Best&) = default;
};

struct ArgmaxArgs {
  const float* x = nullptr;  // [rows, dim], rows x_stride floats apart. -infinity is ruled out.
  Best* best = nullptr;      // [rows]
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t x_stride = 0;
};

namespace cpu {
// On the calling thread: rows are few, and whoever has many spreads them with what follows.
void Argmax(const ArgmaxArgs& args, DeviceStream stream);
}  // namespace cpu
namespace ref {
void Argmax(const ArgmaxArgs& args, DeviceStream stream);
}

}  // namespace shardline
