#include "kernels/residual_add.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_add.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

void ResidualAddRows(const ResidualAddArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* hidden = args.hidden + row * args.hidden_stride;
    const float* delta = args.delta + row * args.delta_stride;
    int64_t i = 0;
    for (; i + 16 <= args.dim; i += 16) {
      StoreLanes(Add(LoadLanes(hidden + i), LoadLanes(delta + i)), hidden + i);
    }
    for (; i < args.dim; ++i) hidden[i] = hidden[i] + delta[i];
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(ResidualAddRows);

absl::Status ResidualAdd(const ResidualAddArgs& args, DeviceStream stream) {
  RunRows(stream, args.rows, args.dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ResidualAddRows)(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
