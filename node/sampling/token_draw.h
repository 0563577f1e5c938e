#pragma once

// Draws one token from a row of logits: weights, cuts, and the place where their sum passes a
// random number. Also what a row says of probabilities.
//
// Weights are those of kernels/exp_weights.h. Sums of them are double: over candidates best first
// (ties: lowest id first) if top-k or top-p is on; else by id, over blocks and then within one, or
// over the candidates alone if min-p is on. So equal logits give equal tokens on every machine of
// a numerics class. Not thread-safe: scratch memory is kept between calls.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "node/sampling/sampling_params.h"

namespace shardline {

class TokenDraw {
 public:
  // A token by temperature, top-k, top-p and min-p of `params`. `max` is the largest logit, and
  // finite; none is NaN or +infinity; `uniform` is in [0, 1). REQUIRES: temperature > 0.
  int32_t Draw(const SamplingParams& params, std::span<const float> logits, float max,
               float uniform);

  // The log of the sum of exp(logit); `max` as above.
  float LogSum(std::span<const float> logits, float max);

  // The `count` largest logits with their tokens, best first.
  std::vector<std::pair<int32_t, float>> Best(std::span<const float> logits, size_t count);

 private:
  // A token still in the race.
  struct Candidate {
    float logit;
    int32_t token;
    double weight;
  };

  // Fills weights_ and block_sums_; returns their sum.
  double Weigh(std::span<const float> logits, float max, float scale);
  // Fills candidates_ with the tokens whose logits are at least `bound`, by id; with weights_, if
  // there are any.
  void Gather(std::span<const float> logits, float bound);
  // The same with those whose weights_ are at least `min_weight`.
  void GatherWeights(std::span<const float> logits, float min_weight);
  // Sorts the best `count` candidates to the front.
  void SelectBest(size_t count);
  void TakeTopK(std::span<const float> logits, size_t count, float max, float scale);
  void TakeTopP(std::span<const float> logits, double wanted, float max, float scale);
  bool CutTopP(double wanted);
  int32_t WalkBlocks(double target) const;
  int32_t WalkCandidates(double min_weight, float uniform) const;

  std::vector<float> weights_;
  std::vector<float> block_sums_;
  std::vector<Candidate> candidates_;
};

}  // namespace shardline
