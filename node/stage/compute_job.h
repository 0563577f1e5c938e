#pragma once

// What a core asks the device to compute, and what comes back. Plain data: the cores fill it, the
// executor runs it, neither sees the other.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/buffer.h"
#include "base/id.h"
#include "node/sampling/sampler.h"

namespace shardline {

// Consecutive tokens of one attempt inside a job.
struct JobSlice {
  StepKey key;
  int32_t position = 0;  // Absolute position of the first token: the committed length.
  int32_t token_count = 0;
  int32_t kept_rows = 0;       // The first ones, whose keys and values the pages hold already: they
                               // are computed, and not written.
  std::vector<int32_t> pages;  // Page table; covers position + token_count.
};

enum class JobKind : uint8_t {
  kLayers,  // Run the shard's layers over the rows; at the head, embed `tokens` first.
  kFinish,  // Head only: final norm, lm_head and sampling of `hidden`'s chosen rows.
};

// One row of a kFinish job that wants a token.
struct SampleTarget {
  StepKey key;
  int32_t row = 0;                   // Row of `hidden`.
  uint64_t index = 0;                // Which generated token of the session is drawn.
  std::vector<int32_t> drafts;       // Guesses at what is drawn, each in a row of its own behind
                                     // `row`: drawing goes on as long as they are right.
  std::shared_ptr<Sampler> sampler;  // No other target's. The device uses it until the job is
                                     // done, from any of its threads.
};

struct ComputeJob {
  uint64_t id = 0;
  JobKind kind = JobKind::kLayers;
  std::vector<JobSlice> slices;       // kLayers.
  std::vector<int32_t> tokens;        // kLayers at the head: one a row, in slice order.
  BufferRef hidden;                   // Otherwise: f32 [rows, hidden_dim], in slice order.
  std::vector<SampleTarget> samples;  // kFinish.
};

struct SampleResult {
  StepKey key;
  absl::Status status;  // Of the request's own logits or policy, or OK.
  // Drawn in turn: one, and one more for each draft that was right. Those before a failure count.
  std::vector<SampledToken> tokens;
  bool finished = false;  // The request's policy lets nothing follow them: it ends as by a stop.
};

struct ComputeDone {
  uint64_t id = 0;
  absl::Status status;                     // Of the whole job: kDeviceLost, or OK.
  std::vector<absl::Status> slice_status;  // kLayers: kNonFinite or OK, one a slice.
  BufferRef hidden;                        // kLayers: f32 [rows, hidden_dim].
  std::vector<SampleResult> samples;       // kFinish, in order of the targets.
  absl::Duration compute_time;
};

}  // namespace shardline
