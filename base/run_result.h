#pragma once

// How a run of an attempt ended well, as the head tells it to the coordinator.

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace shardline {

enum class FinishReason : int32_t {
  kNone = 0,    // The attempt failed, or the peer's word is unknown.
  kStop = 1,    // A stop token, or the text is complete by its rules.
  kLength = 2,  // new_tokens_max, or the context or reservation is full.
};

// Measured in the head, on its own clock.
struct RunTimings {
  absl::Duration prefill;                // Admission to first token.
  absl::Duration decode;                 // First to last token.
  uint32_t laps = 0;                     // Decode laps round the ring.
  absl::Duration lap_time;               // Sum over laps, step sent to hidden state back.
  absl::Duration head_compute;           // Of decode: own layers, norm, lm_head and sampling.
  absl::Duration stage_compute;          // Of lap_time: all stages' layers, as they reported,
  std::vector<absl::Duration> by_stage;  // and each stage's share of it; empty: unknown.
  absl::Duration queued;                 // Arrival at the head to admission.
  uint32_t drafted = 0;                  // Draft tokens verified,
  uint32_t accepted = 0;                 // and found to be what is sampled.
  uint32_t rounds = 0;                   // That a row of the attempt was in,
  uint32_t rounds_between_max = 0;       // and the most that began between two of its tokens.
};

}  // namespace shardline
