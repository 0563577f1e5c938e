#include "coordinator/sessions/restart_policy.h"

#include <algorithm>

namespace shardline {

RestartRule RestartRuleOf(FailureKind kind) {
  if (!RestartMayHelp(kind)) return RestartRule::kNever;
  switch (kind) {
    case FailureKind::kHeartbeatLost:
    case FailureKind::kWorkerDeath:
    case FailureKind::kDeviceLost:
    case FailureKind::kStreamReset:
    case FailureKind::kCacheMiss:
    case FailureKind::kUncertain:
    case FailureKind::kChecksumMismatch:
    // Of the attempt that is current here: the node has another life, or has ended the attempt by
    // itself. If a newer coordinator was why, the store refuses the next grant.
    case FailureKind::kStaleEpoch:
      return RestartRule::kAnyRoute;
    case FailureKind::kNonFinite:
    case FailureKind::kIncompatibleRecipe:
      return RestartRule::kOtherRoute;
    case FailureKind::kOverloaded:
    case FailureKind::kKvExhausted:
      return RestartRule::kLater;
    default:
      return RestartRule::kNever;  // Not reached: restart_policy_test.cc asks for every kind.
  }
}

bool IsConnectionLoss(const absl::Status& status) {
  switch (FailureKindOf(status)) {
    case FailureKind::kStreamReset:
    case FailureKind::kCancelled:
      return true;
    case FailureKind::kNone:
      return absl::IsUnavailable(status) || absl::IsCancelled(status);
    default:
      return false;
  }
}

bool LeavesStepsUnverified(FailureKind kind) {
  switch (kind) {
    case FailureKind::kHeartbeatLost:
    case FailureKind::kWorkerDeath:
    case FailureKind::kDeviceLost:
    case FailureKind::kStreamReset:
    case FailureKind::kUncertain:
      return true;
    default:
      return false;
  }
}

void RestartBudget::OnSessionStarted() {
  available_ = std::min(available_ + options_.per_session, options_.burst);
}

bool RestartBudget::Take(Instant now) {
  Refill(now);
  if (available_ < 1) return false;
  available_ -= 1;
  return true;
}

Instant RestartBudget::NextAt(Instant now) {
  Refill(now);
  if (available_ >= 1) return now;
  // A millisecond more, so that rounding never asks too early and then again at once.
  return now + absl::Seconds((1 - available_) / options_.per_second) + absl::Milliseconds(1);
}

void RestartBudget::Refill(Instant now) {
  if (now <= refilled_at_) return;
  const double seconds = absl::ToDoubleSeconds(now - refilled_at_);
  available_ = std::min(available_ + seconds * options_.per_second, options_.burst);
  refilled_at_ = now;
}

}  // namespace shardline
