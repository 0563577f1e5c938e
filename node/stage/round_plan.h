#pragma once

// One round: the rows that one pass round the ring carries, decided whole before any of them runs.
// Plain data. See rounds/round_planner.h for how it is chosen and pre_plan.h for how the next one
// is prepared while this one runs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"

namespace shardline {

enum class RoundRowKind : uint8_t {
  kPiece,   // Prompt tokens, with more to come.
  kFinal,   // The prompt's last ones: its last token is sampled from.
  kDecode,  // One token that was sampled.
  kVerify,  // A sampled token and drafts behind it; each is sampled from.
};

struct RoundRow {
  AttemptKey attempt;
  StepIndex step;
  RoundRowKind kind = RoundRowKind::kDecode;
  int32_t position = 0;     // Of the first token: the length expected of every stage.
  int32_t token_count = 0;  // Drafts included.
  int32_t rejected = 0;     // As BundleRow's.
  int32_t slot = -1;        // Of the sampler, for rows that are sampled from.

  friend bool operator==(const RoundRow&, const RoundRow&) = default;
};

struct RoundPlan {
  uint64_t walk = 0;  // The round's number, from 1, rising.
  uint64_t lane = 0;  // Whose routes are the same ring.
  std::vector<RoundRow> rows;
  int32_t padded_rows = 0;     // What a device that captures graphs pads to; 0: it does not.
  uint64_t capture_key = 0;    // Of the graph that such a device replays.
  uint64_t kv_generation = 0;  // Rises with whatever changes who holds which pages.

  // "round 7: 3 rows of 18 tokens (sessions 4, 9, 11)", for the log.
  std::string ToString() const;
  // Everything but the walk: two plans that are equal prepare the same things.
  bool SameWork(const RoundPlan& other) const;
};

}  // namespace shardline
