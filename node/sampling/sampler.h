#pragma once

// Draws the next token of one session.
//
// Order of operations: bias, repetition, frequency and presence penalty, temperature, top-k,
// top-p, min-p, draw. All in float with a fixed order, so that the token depends on nothing but
// logits, parameters, history and index. The random number is counter-based, a pure function of
// (seed, index): a restart, a draft or a neighbour cannot change a draw.
//
// Not thread-safe: it travels with the compute job, and whoever holds the job may call it.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "node/sampling/sampling_params.h"

namespace shardline {

struct SampledToken {
  int32_t token = -1;
  float logprob = 0.0F;                                 // If asked for.
  std::vector<std::pair<int32_t, float>> top_logprobs;  // If asked for; best first.
  uint64_t logits_digest = 0;                           // If asked for.
};

// A uniform number in [0, 1) with 24 random bits: Philox 4x32-10 keyed by `seed` at counter
// `index`.
float UniformAt(uint64_t seed, uint64_t index);

class Sampler {
 public:
  // REQUIRES: params are valid (ValidateSampling).
  // `history` is the prompt; `generated` what older attempts already drew.
  Sampler(SamplingParams params, int32_t vocab_size, std::span<const int32_t> prompt,
          std::span<const int32_t> generated);

  // Draws token number `index` of the session (from 0) and takes it into the history.
  // Fails with kNonFinite when no logit is finite, or any is NaN or +infinity.
  //   logits  [vocab]   scratch afterwards: penalties are applied in place
  absl::StatusOr<SampledToken> Sample(std::span<float> logits, uint64_t index);

  const SamplingParams& params() const { return params_; }

 private:
  struct Counts {
    int32_t prompt = 0;
    int32_t generated = 0;
  };

  const SamplingParams params_;
  const int32_t vocab_size_;
  absl::flat_hash_map<int32_t, Counts> counts_;
  std::vector<std::pair<float, int32_t>> candidates_;  // Scratch, kept between calls.
};

}  // namespace shardline
