#pragma once

// What the head is asked to run and how it ends; in the terms of head.proto, without its bytes.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/prefix_chain.h"
#include "base/run_result.h"
#include "node/sampling/sampler.h"
#include "node/sampling/text_rules.h"
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
  std::string tenant;             // Whom rounds are shared fairly between.
  int32_t cached_tokens = 0;      // The prefix whose KV every stage holds; whole pages.
  PrefixKey prefix_root;          // As OpenAttempt's.
  bool no_drafts = false;
  int32_t rounds_in_flight = 0;  // Of this route, by the cost model; 0: one.
  absl::Duration step_cost;      // Of a lap without rows, as measured at load,
  absl::Duration row_cost;       // and of each row; zero: unknown.
  bool want_progress = false;
  TextRules rules;  // On what is generated.
};

struct TokenOut {
  AttemptKey key;
  uint32_t index = 0;  // Of the generated token in the session, from 0.
  SampledToken token;
};

// How far the prompt of an attempt is that wants to know.
struct ProgressOut {
  AttemptKey key;
  int32_t tokens_done = 0;  // Of prompt and forced prefix, cached ones included.
  int32_t tokens = 0;
};

// Exactly one for each attempt that OnRun accepted.
struct AttemptEnd {
  AttemptKey key;
  absl::Status status;
  FinishReason reason = FinishReason::kNone;  // Set when status is OK.
  uint32_t tokens = 0;      // Generated, delivered ones included, the stop token excluded.
  int32_t stop_token = -1;  // When reason is kStop; -1: the text is complete by its rules.
  RunTimings timings;
};

}  // namespace shardline
