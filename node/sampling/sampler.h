#pragma once

// Draws the next token of one session.
//
// Order of operations: bias, repetition, frequency and presence penalty, the policy, temperature,
// top-k, top-p, min-p, draw (token_draw.h). The token depends on nothing but logits, parameters,
// history and index. The random number is counter-based, a pure function of (seed, index): a
// restart, a draft or a neighbour cannot change a draw.
//
// Not thread-safe: it travels with the compute job, and whoever holds the job may call it.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/argmax.h"
#include "node/sampling/row_policy.h"
#include "node/sampling/sampling_params.h"
#include "node/sampling/token_draw.h"

namespace shardline {

struct SampledToken {
  int32_t token = -1;
  float logprob = 0.0F;                                 // If asked for.
  std::vector<std::pair<int32_t, float>> top_logprobs;  // If asked for; best first.
  uint64_t logits_digest = 0;                           // If asked for.
};

// What one row, or a row and its drafts, gave.
struct DrawnTokens {
  absl::Status status;  // Of the first row that gave no token; the tokens before it stand.
  std::vector<SampledToken> tokens;
  bool finished = false;  // The policy lets nothing follow the last of them.
};

// A uniform number in [0, 1) with 24 random bits: Philox 4x32-10 keyed by `seed` at counter
// `index`.
float UniformAt(uint64_t seed, uint64_t index);

class Sampler {
 public:
  // REQUIRES: params are valid (ValidateSampling).
  // `prompt` and `generated`, what older attempts already drew, are the history. `policy`, if any,
  // has seen none of it yet: it is told of `generated`.
  Sampler(SamplingParams params, int32_t vocab_size, std::span<const int32_t> prompt,
          std::span<const int32_t> generated, std::unique_ptr<RowPolicy> policy = nullptr);

  // Draws token number `index` of the session (from 0) and takes it into the history. Fails with
  // kNonFinite when no logit is finite, or any is NaN or +infinity; with kInvalidRequest, or the
  // policy's own failure, when the policy rules out every token.
  //   logits  [vocab]   scratch afterwards: penalties are applied in place
  absl::StatusOr<SampledToken> Sample(std::span<float> logits, uint64_t index);

  // Draws tokens `index`, `index` + 1, … each from the next row, for as long as the token before
  // was its draft: what comes is what so many calls of Sample would give, one a step.
  //   logits  [1 + drafts, vocab]   row j + 1 is of the text with drafts 0 … j in it
  // REQUIRES: the caller wants as many tokens, and no draft ends the text.
  DrawnTokens SampleInTurn(std::span<float> logits, std::span<const int32_t> drafts,
                           uint64_t index);

  // The policy lets nothing follow what was drawn so far.
  bool finished() const { return policy_ != nullptr && policy_->finished(); }

  const SamplingParams& params() const { return params_; }

 private:
  struct Counts {
    int32_t prompt = 0;
    int32_t generated = 0;
  };

  void Count(int32_t token, bool is_prompt);
  void ApplyPenalties(std::span<float> logits) const;
  // Leaves the log of the normaliser in out.logprob.
  void ReportLogprobs(std::span<const float> raw, float max, SampledToken& out);
  // The largest logit once bias, penalties and policy have spoken.
  absl::StatusOr<Best> Modify(std::span<float> logits, uint64_t index);

  const SamplingParams params_;
  const int32_t vocab_size_;
  const bool has_penalties_;
  const std::unique_ptr<RowPolicy> policy_;      // May be null.
  absl::flat_hash_map<int32_t, Counts> counts_;  // Empty without penalties.
  TokenDraw draw_;
  std::vector<float> raw_;  // Scratch: logits before penalties.
};

}  // namespace shardline
