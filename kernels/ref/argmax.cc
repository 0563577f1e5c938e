#include "kernels/argmax.h"

#include <limits>

namespace shardline::ref {

void Argmax(const ArgmaxArgs& args, DeviceStream /*stream*/) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* const x = args.x + row * args.x_stride;
    Best best{.index = -1, .value = -kInfinity};
    bool fit = true;
    for (int64_t i = 0; i < args.dim; ++i) {
      fit = fit && x[i] < kInfinity;
      if (x[i] > best.value) best = {.index = i, .value = x[i]};
    }
    args.best[row] = fit && best.index >= 0 ? best : Best();
  }
}

}  // namespace shardline::ref
