#pragma once

// The weights of a draw: weight[i] = exp((logit[i] - max) * scale), and their sums by blocks.
//
// In blocks, so that whoever looks for the place where a running sum passes a target skips all
// blocks but one. On the host whatever the device, as sampling is; one thread. The exponential is
// our own (kernels/NUMERICS.md, section "Weights of a draw"): the same bits on every target.

#include <cstdint>

namespace shardline {

inline constexpr int64_t kWeightBlock = 256;

struct ExpWeightsArgs {
  const float* logits = nullptr;  // [count], none above max, none NaN; -infinity weighs zero.
  float* weights = nullptr;       // [count]. Null: only the sums are wanted.
  float* block_sums = nullptr;    // [WeightBlocks(count)]
  int64_t count = 0;
  float max = 0.0F;    // Finite.
  float scale = 1.0F;  // Finite, not negative.
};

constexpr int64_t WeightBlocks(int64_t count) { return (count + kWeightBlock - 1) / kWeightBlock; }

namespace cpu {
void ExpWeights(const ExpWeightsArgs& args);
}
namespace ref {
void ExpWeights(const ExpWeightsArgs& args);
}

}  // namespace shardline
