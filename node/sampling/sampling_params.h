#pragma once

// How a token is drawn from logits, as a request asks for it.

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace shardline {

struct SamplingParams {
  float temperature = 0.0F;         // 0: greedy; ties go to the lowest id.
  int32_t top_k = 0;                // 0: off.
  float top_p = 1.0F;               // 1: off.
  float min_p = 0.0F;               // 0: off.
  float repetition_penalty = 1.0F;  // 1: off. Prompt and output count.
  float frequency_penalty = 0.0F;   // Output counts.
  float presence_penalty = 0.0F;    // Output counts.
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // Sorted by id.
  bool logprobs = false;       // Of the drawn token, from the unmodified logits.
  int32_t top_logprobs = 0;    // Alternatives to report, at most kTopLogprobsMax.
  bool logits_digest = false;  // XXH3-64 of the raw logits row, for audits.
};

inline constexpr int32_t kTopLogprobsMax = 20;

// kInvalidRequest, naming the field, for anything out of range or not finite.
absl::Status ValidateSampling(const SamplingParams& params, int32_t vocab_size);

}  // namespace shardline
