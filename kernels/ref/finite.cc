#include "kernels/finite.h"

#include <cmath>

namespace shardline::ref {

int64_t FirstNonFiniteRow(const FiniteArgs& args, DeviceStream /*stream*/) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t i = 0; i < args.dim; ++i) {
      if (!std::isfinite(args.x[row * args.x_stride + i])) return row;
    }
  }
  return -1;
}

}  // namespace shardline::ref
