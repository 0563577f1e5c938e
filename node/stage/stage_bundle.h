#pragma once

// The words that stages, the head and the shells around them exchange. Plain data in the terms
// of proto/shardline/v1/link.proto, without its bytes.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/buffer.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "base/prefix_chain.h"
#include "base/route.h"

namespace shardline {

// What must match for bits to be equal.
struct Recipe {
  ModelId model_id;
  NumericsId numerics_id;
  PlanEpoch plan_epoch;

  std::string ToString() const;
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

// BundleRow.flags: the last token's hidden state goes to lm_head.
inline constexpr uint32_t kRowWantsLogits = 1;
// All of its tokens' hidden states do: a step that verifies drafts. It returns whole.
inline constexpr uint32_t kRowWantsAllLogits = 2;
// Each stage says how long it computed. Asked of few rows, because it is for people.
inline constexpr uint32_t kRowWantsStageTimes = 4;

// One step of one attempt inside a bundle: `token_count` consecutive tokens. A row on its way
// back to the head (hop = length of the route) carries the hidden state of its last token alone:
// token_count is 1 and position that token's; but one with kRowWantsAllLogits returns whole.
struct BundleRow {
  StepKey key;
  int32_t position = 0;  // Of the first token: the length committed before this step.
  int32_t token_count = 0;
  uint32_t hop = 0;       // Destination stage; the route's length means back at the head.
  absl::Duration budget;  // Time left; shrinks on every hop.
  uint32_t flags = 0;
  absl::Duration compute;  // Of the stages so far, for this step; a peer's word, for timings only.
  uint64_t chain = 0;      // Of all the sender sent before this step: step_chain.h.
  // Of the page that ends at or before `position`, whose tokens are all accepted and that no row of
  // the attempt named before; empty: none.
  PrefixKey prefix_key;
  // Drafts of the step before that were wrong: so many of the last committed tokens are taken back
  // before this step, which is the first after theirs. `position` counts without them.
  int32_t rejected = 0;
  std::vector<absl::Duration> stage_compute;  // `compute`, by stage, if asked for.
};

struct StageBundle {
  std::vector<BundleRow> rows;
  std::vector<int32_t> tokens;  // Only from the own head: one a token, in row order.
  BufferRef hidden;             // Otherwise: f32 [sum of token_count, hidden_dim], in row order.
  // Of the link that brought it: OnLinkAccepted. 0 from the own head, and of bundles to be sent.
  uint64_t connection = 0;
};

// One row was refused, by this stage or further down the route; its neighbours go on.
struct RowFailure {
  StepKey key;
  absl::Status status;
};

// OPEN: from the coordinator, before any bundle of the attempt.
struct OpenAttempt {
  AttemptKey key;
  Term term;
  Incarnation incarnation;  // Of the receiver.
  Recipe recipe;
  uint32_t stage_index = 0;  // The receiver's place in `route`.
  std::vector<RouteStage> route;
  int32_t tokens_max = 0;  // Prompt plus generation; the KV to reserve.
  absl::Duration budget;   // Time left for the request.
  // One a full page of the prompt, from the first on: base/prefix_chain.h. What the stage has of
  // them is pinned for the attempt, and what it computes of them is kept for others.
  std::vector<PrefixKey> prefix_keys;
  PrefixKey prefix_root;   // What the chain begins with; empty: nothing is cached.
  uint64_t open_seq = 0;   // Rising over all OPENs of one coordinator.
  std::string capability;  // What only the coordinator can have made.
};

// After a link was reset: what the sender asks about an attempt, and what the receiver knows.
struct InspectRow {
  AttemptKey key;
};
struct InspectStatus {
  AttemptKey key;
  StepIndex step_next;   // The first step the receiver has not taken.
  uint64_t chain = 0;    // Of all it has taken before.
  absl::Status failure;  // Not OK: the attempt is not open there.
};

struct OpenReply {
  int32_t pages_reserved = 0;
  int32_t pages_free = 0;
  int32_t cached_tokens = 0;  // Of the prompt's first pages, pinned for the attempt.
};

struct FenceReply {
  int32_t pages_released = 0;
  int32_t buffers_released = 0;  // Retained outputs and waiting inputs dropped.
  bool pages_pinned = false;     // A running step still pins pages; they return when it ends.
};

}  // namespace shardline
