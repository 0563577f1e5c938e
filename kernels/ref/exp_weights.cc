#include "kernels/exp_weights.h"

#include <array>

#include "kernels/flush_denormals.h"
#include "kernels/ref/arithmetic.h"

namespace shardline::ref {

void ExpWeights(const ExpWeightsArgs& args) {
  const ScopedFlushDenormals flush;
  for (int64_t block = 0; block < WeightBlocks(args.count); ++block) {
    std::array<float, 16> lanes = {};
    for (int64_t i = block * kWeightBlock; i < args.count && i < (block + 1) * kWeightBlock; ++i) {
      const float weight = ExpNonPositive((args.logits[i] - args.max) * args.scale);
      if (args.weights != nullptr) args.weights[i] = weight;
      lanes[static_cast<size_t>(i % 16)] += weight;
    }
    args.block_sums[block] = SumLanes(lanes);
  }
}

}  // namespace shardline::ref
