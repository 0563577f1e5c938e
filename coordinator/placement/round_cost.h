#pragma once

// How many rounds a route keeps in flight: a pure function of what its stages cost.
//
// The model. A round of b rows keeps a stage busy for step + b x row; the head once more for norm,
// lm_head and sampling. Rounds wait for three kinds of resource: a stage; the cores of stages whose
// processes may run on a common CPU of one machine, of which each takes the part that its threads
// are; and memory buses, shared by all stages of a machine, where a step occupies the bus for its
// weights over the fastest read measured there.
// With D the time that a round needs of the resource it needs most, and R the time of an
// undisturbed lap, hops included, m rounds in flight begin a round every
//
//   smooth = max(D, R / m)                    if all times were constant (the optimistic bound)
//   random = (R + (m - 1) x D) / m            if they scattered without memory (the pessimistic
//   one) period = (1 - jitter) x smooth + jitter x random
//
// The choice. The largest useful load fills every round with prompt rows, whatever is in flight;
// so the smallest number counts whose full rounds come within 2 % of the fastest, but none with
// which decoding alone (the sessions' rows dealt over the rounds) were slower than with one round.
// Hence stages on their own hardware get N + 1 (the spare one hides hops and jitter), stages on the
// same cores one (more would only read the weights more often), and what shares a bus whatever its
// arithmetic leaves room for. A single session loses nothing: its one row is one round.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/shard_cost.h"

namespace shardline {

inline constexpr int32_t kRoundsForecastMax = 4;  // Steps of one attempt that a stage retains.

// Of one stage of a route.
struct StageCost {
  ShardCost cost;             // As its node measured it.
  uint64_t weight_bytes = 0;  // Read by a step.
  double read_bytes_per_s = 0;
  std::string machine;         // The same for processes of one machine; empty: its own.
  std::vector<uint32_t> cpus;  // That its process may run on; empty: all of the machine's.
  uint32_t threads = 0;        // Of `cpus` that it keeps busy; 0: all.
};

struct RoundLoad {
  int32_t sessions = 64;    // That decode at once.
  int32_t full_rows = 256;  // Of a round that prompts fill.
  absl::Duration hop = absl::Microseconds(200);
  // 0: times are constant; 1: they scatter without memory. Rings of two were measured at 0.93 to
  // 0.96 of their slowest stage with two rounds in flight, a little more with three.
  double jitter = 0.2;
};

// What a route does with `in_flight` rounds in flight.
struct RoundForecast {
  int32_t in_flight = 1;
  double decode_tokens_per_s = 0;  // Of all sessions together, nothing else to do.
  double full_rounds_per_s = 0;
};

// For in_flight from 1 to one more than there are stages, at most kRoundsForecastMax. Stages that
// did not measure count by their bytes over their read speed, for the shape of the result only.
std::vector<RoundForecast> ForecastRounds(absl::Span<const StageCost> stages,
                                          const RoundLoad& load = {});

// What the head of a route is told.
struct RoundChoice {
  int32_t in_flight = 1;
  absl::Duration lap_step;  // A lap without rows and each row of it, as measured; zero when some
  absl::Duration lap_row;   // stage did not measure, or not its rows.

  friend bool operator==(const RoundChoice&, const RoundChoice&) = default;
};

RoundChoice ChooseRounds(absl::Span<const StageCost> stages, const RoundLoad& load = {});

}  // namespace shardline
