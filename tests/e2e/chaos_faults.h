#pragma once

// Applies planned faults to a cluster, one after the other, in a thread of its own.

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/e2e/chaos_plan.h"
#include "tests/e2e/cluster.h"

namespace shardline::testing {

class FaultDriver {
 public:
  // Starts at once. `tokens_seen` paces it; when no token comes for a while it goes on without.
  FaultDriver(Cluster* cluster, std::vector<PlannedFault> faults,
              const std::atomic<int64_t>* tokens_seen);
  ~FaultDriver();

  // No new fault; the one in force is undone. Afterwards the cluster is whole.
  void Stop();

  // After Stop:
  const std::map<Fault, int>& applied() const { return applied_; }
  // Processes that ended although nobody killed them.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  void Run();
  void Apply(const PlannedFault& fault);
  // False when it is time to stop.
  bool Wait(absl::Duration duration);
  bool AwaitTokens(int count);
  void CheckAlive();

  Cluster* const cluster_;
  const std::vector<PlannedFault> faults_;
  const std::atomic<int64_t>* const tokens_seen_;
  std::map<Fault, int> applied_;
  std::vector<std::string> violations_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace shardline::testing
