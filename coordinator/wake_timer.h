#pragma once

// Calls one function when the time has come that was asked for last.

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/instant.h"

namespace shardline {

class WakeTimer {
 public:
  // `wake` is called on the timer's thread and must not block.
  WakeTimer(const Clock* clock, std::function<void()> wake)
      : clock_(clock), wake_(std::move(wake)), thread_([this] { Run(); }) {}
  ~WakeTimer() { Stop(); }

  // Replaces what was asked for before.
  void WakeAt(Instant when) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (when == when_) return;
    when_ = when;
    changed_ = true;
  }

  void Stop() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
      changed_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        mu_.AwaitWithTimeout(absl::Condition(&changed_), when_ - clock_->Now());
        changed_ = false;
        if (stopped_) return;
        if (clock_->Now() < when_) continue;
        when_ = Instant::InfiniteFuture();
      }
      wake_();
    }
  }

  const Clock* const clock_;
  const std::function<void()> wake_;

  absl::Mutex mu_;
  Instant when_ ABSL_GUARDED_BY(mu_) = Instant::InfiniteFuture();
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace shardline
