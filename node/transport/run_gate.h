#pragma once

// Counts the runs that were let in, so that a drain can wait for the last of them.
//
// A run is counted before it is asked whether the gate is shut: one that came in time is waited
// for, and one that did not was counted until its refusal was written. Neither is lost.

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace shardline {

// Any thread.
class RunGate {
 public:
  // Counts a run; Leave follows in any case. False: the gate is shut, and the run is to be refused.
  [[nodiscard]] bool Enter() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ++count_;
    return !shut_;
  }

  // The run is over, or its refusal is written.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    SL_CHECK(count_ > 0);
    --count_;
  }

  // From now on runs are refused.
  void Shut() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    shut_ = true;
  }

  // False if some run is still in after `timeout`.
  [[nodiscard]] bool AwaitEmpty(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return count_ == 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&none), timeout);
  }

  int count() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return count_;
  }

 private:
  mutable absl::Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace shardline
