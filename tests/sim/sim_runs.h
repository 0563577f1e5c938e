#pragma once

// Many simulations: over all cores, in shares that do not depend on how many there are; and a
// failing one made small.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/scenario.h"
#include "tests/sim/sim_world.h"

namespace shardline::sim {

struct Failure {
  uint64_t index = 0;
  Scenario scenario;
  Violation violation;
};

struct Batch {
  uint64_t schedules = 0;
  uint64_t events = 0;
  uint64_t failures = 0;
  std::vector<Failure> first_failures;  // By index; a few.
  SometimesCounts counts = {};
  uint64_t trace_hash = 0;  // Of all traces; the same however the work was shared out.
  double seconds = 0;       // Of CPU time, all threads together.
};

// Runs scenarios 0 to count - 1, as `nth` makes them, on `jobs` threads. Ends early once there is a
// failure, if `stop_at_first`. `on_thread` is called first on each thread.
Batch RunBatch(uint64_t count, int jobs, const std::function<Scenario(uint64_t)>& nth,
               bool stop_at_first = false, const std::function<void()>& on_thread = nullptr);

// The exhaustive sweep: one fault of each kind, at each node, before every event of the plain
// world's session and what follows it.
std::vector<Scenario> SweepScenarios(uint64_t seed);

// All pairs of {kill, cancel, deadline, reset} at every `stride`th pair of events.
std::vector<Scenario> PairScenarios(uint64_t seed, uint64_t stride);

// The smallest scenario found that breaks the same invariant: faults dropped one at a time, then
// sessions, then lengths and numbers made small.
Scenario Shrink(const Scenario& scenario, int invariant);

// What to print about a failure: invariant, scenario, last events, and how to see it again.
std::string Describe(const Failure& failure, bool shrink);

}  // namespace shardline::sim
