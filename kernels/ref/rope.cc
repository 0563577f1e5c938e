#include "kernels/rope.h"

#include <cmath>

#include "base/status_macros.h"
#include "kernels/flush_denormals.h"

namespace shardline::ref {
namespace {

void TurnHead(float* head, const float* cosines, const float* sines, int64_t pairs,
              RopePairs pairing) {
  for (int64_t i = 0; i < pairs; ++i) {
    float& a = pairing == RopePairs::kInterleaved ? head[2 * i] : head[i];
    float& b = pairing == RopePairs::kInterleaved ? head[2 * i + 1] : head[i + pairs];
    const float turned_a = std::fma(-b, sines[i], a * cosines[i]);
    const float turned_b = std::fma(a, sines[i], b * cosines[i]);
    a = turned_a;
    b = turned_b;
  }
}

}  // namespace

absl::Status Rope(const RopeArgs& args, DeviceStream /*stream*/) {
  const ScopedFlushDenormals flush;
  SL_RETURN_IF_ERROR(CheckRopeArgs(args));
  const int64_t pairs = args.table->rope_dims() / 2;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* cosines = args.table->data() + int64_t{args.positions[row]} * 2 * pairs;
    for (int64_t head = 0; head < args.heads; ++head) {
      TurnHead(args.x + row * args.x_stride + head * args.head_dim, cosines, cosines + pairs, pairs,
               args.pairing);
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
