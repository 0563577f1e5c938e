#pragma once

// Chooses what the next round of a lane carries, from a view of the lane.
//
// A lane is the attempts whose routes are the same ring. A round takes the decode rows that are
// ready, first come, first served, and then pieces of prompts within a budget of tokens. With m
// rounds in flight it takes at most the m-th part of the attempts that decode, so that every round
// finds as many; but a row that m - 1 rounds left behind goes with the next one. So from one token
// of an attempt to its next at most 2 m rounds of its lane begin, whatever prompts fill: m until
// its row goes, and m while it is on its way. (As long as bundle_rows_max holds the m-th part.)
//
// Pure functions of plain data: no clock, nothing is kept. Whoever wants to know the round after
// this one asks with the view as it will be.

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "node/stage/round_plan.h"

namespace shardline {

// A row that may go at once.
struct ReadyRow {
  AttemptKey attempt;
  StepIndex step;
  RoundRowKind kind = RoundRowKind::kDecode;
  int32_t position = 0;
  int32_t token_count = 1;  // Drafts included.
  int32_t rejected = 0;
  int32_t slot = -1;
  uint64_t rounds_waited = 0;  // That began without it since it was ready.
};

// A prompt that may send its next piece at once.
struct FillingPrompt {
  AttemptKey attempt;
  StepIndex step;
  int32_t position = 0;     // Of the first token that is left to send.
  int32_t tokens_left = 0;  // At least one.
  int32_t slot = -1;
};

struct LaneView {
  uint64_t lane = 0;
  int32_t rounds_in_flight_max = 1;        // m.
  int32_t decoding_count = 0;              // Attempts of the lane behind their first token.
  std::span<const ReadyRow> ready;         // In the order in which they became so.
  std::span<const FillingPrompt> filling;  // In turn: one piece each, from the first on.
};

struct RoundLimits {
  int32_t rows_max = 256;  // Of a bundle.
  int32_t tokens_max = 4096;
  int32_t piece_tokens_max = 64;  // Of one piece.
  // Of all pieces: what a token waits behind, and what a round holds when no attempt decodes.
  int32_t piece_tokens_decoding = 64;
  int32_t piece_tokens_idle = 256;
};

// ceil(decoding_count / m), and at least one: the decode rows of one round.
int32_t DecodeRowsMax(const LaneView& view);

// The next round; without rows if nothing may go. `walk` is left to the caller.
// REQUIRES: rounds_in_flight_max > 0; all limits > 0; no token_count above tokens_max.
RoundPlan ComposeRound(const LaneView& view, const RoundLimits& limits);

}  // namespace shardline
