#include "kernels/residual_add.h"

#include "kernels/flush_denormals.h"

namespace shardline::ref {

absl::Status ResidualAdd(const ResidualAddArgs& args, DeviceStream /*stream*/) {
  const ScopedFlushDenormals flush;
  for (int64_t row = 0; row < args.rows; ++row) {
    float* hidden = args.hidden + row * args.hidden_stride;
    const float* delta = args.delta + row * args.delta_stride;
    for (int64_t i = 0; i < args.dim; ++i) hidden[i] = hidden[i] + delta[i];
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
