#pragma once

// Which failures another attempt may mend, and how many attempts the cluster can bear.
//
// Pure functions and one counter; on the coordinator's strand.

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/instant.h"

namespace shardline {

enum class RestartRule {
  kNever,       // Another attempt would fail as this one did, or must not be made.
  kAnyRoute,    // Without the suspects where there is a choice.
  kOtherRoute,  // Only on a route without who is blamed.
  kLater,       // Another route at once, or the same one when its turn comes (admission.h).
};

// kNever iff RestartMayHelp (base/failure.h) says no. A kind this build does not know is fatal to
// the session, never success.
RestartRule RestartRuleOf(FailureKind kind);

// A connection broke: who is to blame is not yet known, and membership is given a moment to say.
// A call cancelled by nobody here is one too: its server goes away.
bool IsConnectionLoss(const absl::Status& status);

// A step may or may not have been applied when this ended an attempt whose run was out.
bool LeavesStepsUnverified(FailureKind kind);

// Bounds restarts over all sessions, so that the loss of half the cluster does not become a storm
// of prefills. A bucket: it holds `burst` restarts and refills by `per_second`, and by a share of
// every session that starts, so that a busy cluster may restart as many in proportion. A restart
// that finds it empty waits, within its own deadline.
class RestartBudget {
 public:
  struct Options {
    double burst = 16;
    double per_second = 8;
    double per_session = 0.1;
  };

  explicit RestartBudget(const Options& options) : options_(options), available_(options.burst) {}

  void OnSessionStarted();
  // True, and one less is left; or false.
  bool Take(Instant now);
  // When Take may be true if nobody else takes.
  Instant NextAt(Instant now);

 private:
  void Refill(Instant now);

  const Options options_;
  double available_;
  Instant refilled_at_;
};

}  // namespace shardline
