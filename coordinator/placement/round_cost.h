#pragma once

// How many rounds a route keeps in flight: a pure function of what its stages cost.
//
// The model. A round of `b` rows keeps a stage busy for step + b x row; the head once more for
// norm, lm_head and sampling. Rounds wait for two kinds of resource: cores, shared by stages whose
// processes may run on a common CPU of one machine, and memory buses, shared by all stages of a
// machine, where a step occupies the bus for its weights over the fastest read measured there. With
// D the time a round needs of the resource that it needs most, and R the time of an undisturbed
// lap, hops included, m rounds in flight begin a round every
//
//   smooth = max(D, R / m)                    if all times were constant (the optimistic bound)
//   random = (R + (m - 1) x D) / m            if they scattered without memory (the pessimistic
//   one) period = (1 - jitter) x smooth + jitter x random
//
// so that stages on their own hardware want N + 1 rounds (one spare hides hops and jitter) and
// stages on the same cores want one (more rounds only read the weights more often).
//
// Judged at the largest useful load: every session decodes, their rows dealt over the rounds, and
// prompts fill in pieces of a fixed size, whatever is in flight. A single session loses nothing by
// a larger number: its one row is one round.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/shard_cost.h"

namespace shardline {

// Of one stage of a route, the head first.
struct StageCost {
  ShardCost cost;             // As its node measured it; a stage without counts by its weights.
  uint64_t weight_bytes = 0;  // Read by a step.
  double read_bytes_per_s = 0;
  std::string machine;         // The same for processes of one machine; empty: its own.
  std::vector<uint32_t> cpus;  // That its process may run on; empty: all of the machine's.
};

struct RoundLoad {
  int32_t sessions = 64;     // That decode at once,
  int32_t prompt_rows = 8;   // with so many prompt tokens for each that is generated,
  int32_t piece_rows = 256;  // run in pieces of this size.
  absl::Duration hop = absl::Microseconds(200);
  double jitter = 0.2;  // From 0, times are constant, to 1, they scatter like waiting for a bus.
};

// What a route does with `in_flight` rounds in flight.
struct RoundForecast {
  int32_t in_flight = 1;
  double decode_tokens_per_s = 0;  // Of all sessions together.
  double prompt_rows_per_s = 0;
  double tokens_per_s = 0;  // Generated, when prompts have to be filled as well.
};

// For in_flight from 1 to kRoundsInFlightMax, or to one more than there are stages if that is less.
std::vector<RoundForecast> ForecastRounds(absl::Span<const StageCost> stages,
                                          const RoundLoad& load);

inline constexpr int32_t kRoundsInFlightMax = 4;  // As many steps of one attempt fit into a ring.

// What the head of a route is told.
struct RoundChoice {
  int32_t in_flight = 1;
  absl::Duration lap_step;  // A lap without rows, and each row of it, as measured; zero: some stage
  absl::Duration lap_row;   // did not measure.

  friend bool operator==(const RoundChoice&, const RoundChoice&) = default;
};

// The smallest number whose tokens_per_s are within 2 % of the best.
RoundChoice ChooseRounds(absl::Span<const StageCost> stages, const RoundLoad& load = {});

}  // namespace shardline
