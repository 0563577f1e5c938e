#include "kernels/finite.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/finite.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

bool RowIsFinite(const float* x, int64_t dim) {
  // x - x is zero exactly when x is finite; a sum of zeros stays zero and a NaN stays a NaN.
  Lanes sum = ZeroLanes();
  int64_t i = 0;
  const FloatTag d;
  for (; i + 16 <= dim; i += 16) {
    const Lanes v = LoadLanes(x + i);
    for (size_t j = 0; j < kParts; ++j) {
      sum.part[j] = hn::Add(sum.part[j], hn::Sub(v.part[j], v.part[j]));
    }
  }
  float rest = 0;
  for (; i < dim; ++i) rest += x[i] - x[i];
  bool finite = rest == 0;
  for (size_t j = 0; j < kParts; ++j) {
    finite = finite && hn::AllTrue(d, hn::Eq(sum.part[j], hn::Zero(d)));
  }
  return finite;
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(RowIsFinite);

int64_t FirstNonFiniteRow(const FiniteArgs& args, DeviceStream /*stream*/) {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (!HWY_DYNAMIC_DISPATCH(RowIsFinite)(args.x + row * args.x_stride, args.dim)) return row;
  }
  return -1;
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
