#pragma once

// One simulation from its scenario to its verdict.
//
// First the faults are on, and only safety is asked. Then everything heals, and every session must
// end within its bound, a fresh one must complete, and nothing may be left over.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/sim/checker.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/support/memory_store.h"

namespace shardline::sim {

struct Outcome {
  std::optional<Violation> violation;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t session_events = 0;  // Until every client of the scenario had heard its end.
  SimTime time = 0;
  SometimesCounts counts = {};
  std::string tail;  // The last events, when something is wrong.
  std::string all;   // Every event, if asked for.

  bool ok() const { return !violation.has_value(); }
};

class SimWorld {
 public:
  explicit SimWorld(const Scenario& scenario);
  ~SimWorld();

  Outcome Run(bool keep_all = false);

 private:
  class DiskClock final : public Clock {
   public:
    explicit DiskClock(const EventQueue* queue) : queue_(queue) {}
    Instant Now() const override { return Instant::FromOrigin(absl::Nanoseconds(queue_->now())); }

   private:
    const EventQueue* const queue_;
  };

  void Build();
  // One event, and what the scenario says comes before it. False when the simulation is over.
  bool Step();
  void RunFaults();
  void RunToTheEnd();
  void RunProbe();
  // Steps until `done` or `until`; false if that time came first.
  template <typename Done>
  bool StepUntil(SimTime until, Done done);

  // sim_faults.cc
  void Apply(const Fault& fault);
  void ApplyToNode(const Fault& fault, SimNode* node);
  void ApplyToWires(const Fault& fault);
  void ApplyToCoordinator(const Fault& fault);
  void Undo(SimTime length, Action action);
  void TakeOver();
  void Heal();
  SimProcess* End(int number);
  bool AllOver() const;
  // Nothing runs and nobody holds anything.
  bool Quiet() const;
  SimCoordinatorOptions CoordinatorOptions(int number) const;

  const Scenario scenario_;
  SimContext context_;
  SimCluster cluster_;
  Checker checker_;
  DiskClock disk_clock_;
  testing::MemoryStore store_;
  SimDisk disk_;
  std::vector<size_t> session_order_;  // By `at`.
  size_t sessions_asked_ = 0;
  size_t faults_applied_ = 0;
  int faults_active_ = 0;
  bool healed_ = false;
  uint64_t over_at_ = 0;
  SimTime healed_at_ = 0;
};

// Runs a scenario. A failed SL_CHECK is a violation, too: invariant 0.
Outcome RunScenario(const Scenario& scenario, bool keep_all = false);

}  // namespace shardline::sim
