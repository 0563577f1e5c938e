#include "kernels/swiglu.h"

#include "kernels/flush_denormals.h"
#include "kernels/ref/arithmetic.h"

namespace shardline::ref {

absl::Status SwiGlu(const SwiGluArgs& args, DeviceStream /*stream*/) {
  const ScopedFlushDenormals flush;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* gate = args.gate + row * args.gate_stride;
    const float* up = args.up + row * args.up_stride;
    float* out = args.out + row * args.out_stride;
    for (int64_t i = 0; i < args.dim; ++i) out[i] = Silu(gate[i]) * up[i];
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
