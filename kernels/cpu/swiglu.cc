#include "kernels/swiglu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

HWY_INLINE Lanes Silu(const Lanes& x) {
  const FloatTag d;
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) {
    const FloatVec v = x.part[i];
    const FloatVec e = ExpNonPositive(hn::Neg(hn::Abs(v)));
    const FloatVec numerator = hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Mul(v, e), v);
    r.part[i] = hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e));
  }
  return r;
}

void SwiGluRows(const SwiGluArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = args.gate + row * args.gate_stride;
    const float* up = args.up + row * args.up_stride;
    float* out = args.out + row * args.out_stride;
    int64_t i = 0;
    for (; i + 16 <= args.dim; i += 16) {
      StoreLanes(Mul(Silu(LoadLanes(gate + i)), LoadLanes(up + i)), out + i);
    }
    if (i < args.dim) {
      const size_t rest = static_cast<size_t>(args.dim - i);
      StoreLanesPartial(Mul(Silu(LoadLanesPartial(gate + i, rest)), LoadLanesPartial(up + i, rest)),
                        out + i, rest);
    }
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(SwiGluRows);

absl::Status SwiGlu(const SwiGluArgs& args, DeviceStream stream) {
  RunRows(stream, args.rows, args.dim * 4, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SwiGluRows)(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
