#include "kernels/argmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/argmax.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The maximum of whole vectors of x; `fit` becomes false if one of their elements is NaN or
// +infinity. A maximum does not depend on the order.
float BlockMax(const float* x, int64_t count, bool& fit) {
  const FloatTag d;
  const auto infinity = hn::Set(d, kInfinity);
  constexpr int64_t kChains = 4;  // Of maxima, so that none waits for the one before.
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  FloatVec most[kChains];
  for (FloatVec& chain : most) chain = hn::Set(d, -kInfinity);
  auto all_fit = hn::FirstN(d, hn::Lanes(d));
  int64_t i = 0;
  for (; i + kChains * width <= count; i += kChains * width) {
    for (int64_t chain = 0; chain < kChains; ++chain) {
      const FloatVec v = hn::LoadU(d, x + i + chain * width);
      all_fit = hn::And(all_fit, hn::Lt(v, infinity));
      most[chain] = hn::Max(most[chain], v);
    }
  }
  fit = fit && hn::AllTrue(d, all_fit);
  FloatVec best = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  float max = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < count; ++i) {
    fit = fit && x[i] < kInfinity;
    max = x[i] > max ? x[i] : max;
  }
  return max;
}

// The largest block first, then its first such element: each element is looked at once, those of
// one block twice.
Best RowBest(const float* x, int64_t dim) {
  constexpr int64_t kBlock = 2048;
  bool fit = true;
  float max = -kInfinity;
  int64_t begin = 0;
  for (int64_t i = 0; i < dim; i += kBlock) {
    const float block = BlockMax(x + i, std::min(kBlock, dim - i), fit);
    if (!(block > max)) continue;
    max = block;
    begin = i;
  }
  if (!fit || max == -kInfinity) return {};
  const float* const first = std::find(x + begin, x + dim, max);
  return {.index = first - x, .value = *first};
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(RowBest);

void Argmax(const ArgmaxArgs& args, DeviceStream /*stream*/) {
  for (int64_t row = 0; row < args.rows; ++row) {
    args.best[row] = HWY_DYNAMIC_DISPATCH(RowBest)(args.x + row * args.x_stride, args.dim);
  }
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
