#pragma once

// One client of a cluster under chaos: asks, re-attaches when its connection is lost, and checks
// every event against the answer it must get.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "tests/e2e/chaos_plan.h"
#include "tests/e2e/cluster.h"

namespace shardline::testing {

// The undisturbed answer of a recipe.
struct ReferenceAnswer {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;
};

struct ClientReport {
  enum class Outcome {
    kCompleted,
    kCancelled,
    kExpired,
    kFailed,
    kLeft,     // Hung up, as planned.
    kRefused,  // Never accepted within its time.
    kLost,     // The coordinator was away until the time was over.
  };

  Outcome outcome = Outcome::kFailed;
  absl::Status status;              // What ended it.
  std::vector<SessionId> sessions;  // Every one that was started for it; more than one is rare.
  std::vector<int32_t> tokens;
  std::string text;
  int restarts = 0;                     // Attempts that took over, as told by events.
  int reattaches = 0;                   // Successful ones.
  int refusals = 0;                     // Before it was accepted.
  absl::Duration took;                  // The last call, from asking to its end.
  std::vector<std::string> violations;  // Empty: it saw nothing wrong.
};
absl::string_view OutcomeName(ClientReport::Outcome outcome);

// Runs one planned session to its end. `tokens_seen` counts the tokens of all clients. Blocks for
// at most the session's deadline and some seconds; a call that is not over by then is a violation.
ClientReport RunClient(Cluster& cluster, const PlannedSession& planned, const Recipe& recipe,
                       const ReferenceAnswer& reference, std::atomic<int64_t>& tokens_seen);

}  // namespace shardline::testing
