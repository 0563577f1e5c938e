#include "kernels/exp_weights.h"

#include <limits>

#include "kernels/flush_denormals.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exp_weights.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

HWY_INLINE Lanes WeightsOf(const Lanes& logits, const ExpWeightsArgs& args) {
  const FloatVec max = hn::Set(FloatTag(), args.max);
  const FloatVec scale = hn::Set(FloatTag(), args.scale);
  Lanes r;
  for (size_t i = 0; i < kParts; ++i) {
    r.part[i] = ExpNonPositive(hn::Mul(hn::Sub(logits.part[i], max), scale));
  }
  return r;
}

void WeightBlock(const ExpWeightsArgs& args, int64_t block) {
  const int64_t begin = block * kWeightBlock;
  const int64_t end = begin + kWeightBlock < args.count ? begin + kWeightBlock : args.count;
  Lanes sum = ZeroLanes();
  int64_t i = begin;
  for (; i + 16 <= end; i += 16) {
    const Lanes weights = WeightsOf(LoadLanes(args.logits + i), args);
    if (args.weights != nullptr) StoreLanes(weights, args.weights + i);
    sum = Add(sum, weights);
  }
  if (i < end) {
    alignas(64) float padded[16];
    for (float& x : padded) x = -std::numeric_limits<float>::infinity();
    const size_t rest = static_cast<size_t>(end - i);
    std::memcpy(padded, args.logits + i, rest * sizeof(float));
    const Lanes weights = WeightsOf(LoadLanes(padded), args);
    if (args.weights != nullptr) StoreLanesPartial(weights, args.weights + i, rest);
    sum = Add(sum, weights);
  }
  args.block_sums[block] = SumLanes(sum);
}

void WeightBlocks(const ExpWeightsArgs& args) {
  const int64_t blocks = shardline::WeightBlocks(args.count);
  for (int64_t block = 0; block < blocks; ++block) WeightBlock(args, block);
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(WeightBlocks);

void ExpWeights(const ExpWeightsArgs& args) {
  const ScopedFlushDenormals flush;
  HWY_DYNAMIC_DISPATCH(WeightBlocks)(args);
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
