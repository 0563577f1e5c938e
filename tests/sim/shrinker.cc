// How a failing scenario is made small.

#include <utility>

#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

bool Breaks(const Scenario& scenario, int invariant) {
  const Outcome outcome = RunScenario(scenario);
  return !outcome.ok() && outcome.violation->invariant == invariant;
}

// Takes a change over if the scenario still fails.
template <typename Change>
bool Try(Scenario& scenario, int invariant, Change change) {
  Scenario smaller = scenario;
  change(smaller);
  if (smaller == scenario || !Breaks(smaller, invariant)) return false;
  scenario = std::move(smaller);
  return true;
}

template <typename T>
void DropEach(Scenario& scenario, int invariant, std::vector<T> Scenario::*list, size_t least) {
  for (size_t i = (scenario.*list).size(); i-- > 0 && (scenario.*list).size() > least;) {
    Try(scenario, invariant,
        [&](Scenario& s) { (s.*list).erase((s.*list).begin() + static_cast<std::ptrdiff_t>(i)); });
  }
}

}  // namespace

Scenario Shrink(const Scenario& scenario, int invariant) {
  Scenario small = scenario;
  if (!Breaks(small, invariant)) return small;
  DropEach(small, invariant, &Scenario::faults, 0);
  DropEach(small, invariant, &Scenario::sessions, 0);
  DropEach(small, invariant, &Scenario::faults, 0);
  Try(small, invariant, [](Scenario& s) { s.clock_ppm = 0; });
  Try(small, invariant, [](Scenario& s) { s.kv_pages = 16; });
  Try(small, invariant, [](Scenario& s) { s.chunk_tokens_max = 8; });
  Try(small, invariant, [](Scenario& s) { s.rounds_in_flight = 0; });
  Try(small, invariant, [](Scenario& s) { s.prefix_cache = false; });
  Try(small, invariant, [](Scenario& s) { s.drafts = false; });
  Try(small, invariant, [](Scenario& s) { s.head_slots = Scenario().head_slots; });
  Try(small, invariant, [](Scenario& s) { s.head_queue = Scenario().head_queue; });
  Try(small, invariant, [](Scenario& s) { s.waiting_max = Scenario().waiting_max; });
  Try(small, invariant, [](Scenario& s) { s.nodes = s.stages * s.replicas; });
  for (size_t i = 0; i < small.sessions.size(); ++i) {
    Try(small, invariant, [i](Scenario& s) { s.sessions[i].key = 0; });
    Try(small, invariant, [i](Scenario& s) { s.sessions[i].new_tokens = 1; });
    Try(small, invariant, [i](Scenario& s) { s.sessions[i].prompt_tokens = 1; });
    Try(small, invariant, [i](Scenario& s) { s.sessions[i].tenant = 0; });
  }
  for (size_t i = 0; i < small.faults.size(); ++i) {
    while (small.faults[i].length > 10 * kMillisecond && Try(small, invariant, [i](Scenario& s) {
             s.faults[i].length = s.faults[i].length / 2 / kMillisecond * kMillisecond;
           })) {
    }
    Try(small, invariant, [i](Scenario& s) { s.faults[i].amount = 1; });
  }
  return small;
}

}  // namespace shardline::sim
