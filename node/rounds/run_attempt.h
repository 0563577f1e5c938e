#pragma once

// What the head is asked to run and how it ends; in the terms of head.proto, without its bytes.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "node/sampling/sampler.h"
#include "node/stage/stage_bundle.h"

namespace shardline {

struct RunAttempt {
  AttemptKey key;  // Open on every stage.
  std::vector<int32_t> prompt;
  std::vector<int32_t> delivered;  // Forced prefix: generated and sent by older attempts.
  int32_t new_tokens_max = 0;      // Counts delivered ones too.
  SamplingParams sampling;
  std::vector<int32_t> stop_tokens;
  absl::Duration budget;
  std::vector<RouteStage> route;  // As opened; names the stages when one is to blame.
  int32_t tokens_max = 0;         // KV reserved at OPEN.
};

enum class FinishReason : int32_t {
  kNone = 0,    // The attempt failed.
  kStop = 1,    // A stop token.
  kLength = 2,  // new_tokens_max, or the context or reservation is full.
};

// Measured in the head, on its own clock.
struct RunTimings {
  absl::Duration prefill;       // Admission to first token.
  absl::Duration decode;        // First to last token.
  uint32_t laps = 0;            // Decode laps round the ring.
  absl::Duration lap_time;      // Sum over laps, step sent to hidden state back.
  absl::Duration head_compute;  // Of decode: own layers, norm, lm_head and sampling.
  absl::Duration stage_compute;  // Of lap_time: all stages' layers, as they reported.
};

struct TokenOut {
  AttemptKey key;
  uint32_t index = 0;  // Of the generated token in the session, from 0.
  SampledToken token;
};

// Exactly one for each attempt that OnRun accepted.
struct AttemptEnd {
  AttemptKey key;
  absl::Status status;
  FinishReason reason = FinishReason::kNone;  // Set when status is OK.
  uint32_t tokens = 0;      // Generated, delivered ones included, the stop token excluded.
  int32_t stop_token = -1;  // When reason is kStop.
  RunTimings timings;
};

}  // namespace shardline
