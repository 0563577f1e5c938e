#include "kernels/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

HWY_INLINE float InverseRms(const float* x, int64_t dim, float epsilon) {
  Lanes squares = ZeroLanes();
  int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const Lanes v = LoadLanes(x + i);
    squares = MulAdd(v, v, squares);
  }
  if (i < dim) {
    const Lanes v = LoadLanesPartial(x + i, static_cast<size_t>(dim - i));
    squares = MulAdd(v, v, squares);
  }
  const FloatTag d;
  const float mean = SumLanes(squares) / static_cast<float>(dim);
  const FloatVec root = hn::Sqrt(hn::Set(d, mean + epsilon));
  return hn::GetLane(hn::Div(hn::Set(d, 1.0f), root));
}

HWY_INLINE void NormalizeOne(const float* x, const float* weight, int64_t dim, float epsilon,
                             float* y) {
  const Lanes scale = SetLanes(InverseRms(x, dim, epsilon));
  int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    StoreLanes(Mul(Mul(LoadLanes(x + i), scale), LoadLanes(weight + i)), y + i);
  }
  if (i < dim) {
    const size_t rest = static_cast<size_t>(dim - i);
    StoreLanesPartial(
        Mul(Mul(LoadLanesPartial(x + i, rest), scale), LoadLanesPartial(weight + i, rest)), y + i,
        rest);
  }
}

void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      NormalizeOne(args.x + row * args.x_stride + group * args.dim, args.weight, args.dim,
                   args.epsilon, args.y + row * args.y_stride + group * args.dim);
    }
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(RmsNormRows);

absl::Status RmsNorm(const RmsNormArgs& args, DeviceStream stream) {
  RunRows(stream, args.rows, args.groups * args.dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
