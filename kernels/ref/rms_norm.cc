#include "kernels/rms_norm.h"

#include <array>
#include <cmath>

#include "kernels/flush_denormals.h"
#include "kernels/ref/arithmetic.h"

namespace shardline::ref {
namespace {

void NormalizeOne(const float* x, const float* weight, int64_t dim, float epsilon, float* y) {
  std::array<float, 16> lanes{};
  for (int64_t i = 0; i < dim; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float mean = SumLanes(lanes) / static_cast<float>(dim);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < dim; ++i) y[i] = (x[i] * scale) * weight[i];
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args, DeviceStream /*stream*/) {
  const ScopedFlushDenormals flush;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      NormalizeOne(args.x + row * args.x_stride + group * args.dim, args.weight, args.dim,
                   args.epsilon, args.y + row * args.y_stride + group * args.dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
