#pragma once

// Calls back when the cores asked to be woken.

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace shardline {

class WakeTimer {
 public:
  // `on_wake` runs on the timer's thread and must not block. `clock` is not owned.
  WakeTimer(const Clock* clock, std::function<void()> on_wake);
  // No call runs afterwards.
  ~WakeTimer();

  WakeTimer(const WakeTimer&) = delete;
  WakeTimer& operator=(const WakeTimer&) = delete;

  // Calls once at `when`, in place of whatever was set before. Any thread; wakes the timer's
  // thread only if `when` is earlier than what it waits for.
  void Set(Instant when) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Clock* const clock_;
  const std::function<void()> on_wake_;

  absl::Mutex mu_;
  absl::CondVar earlier_;
  Instant when_ ABSL_GUARDED_BY(mu_) = Instant::InfiniteFuture();
  Instant sleeping_until_ ABSL_GUARDED_BY(mu_) = Instant::InfiniteFuture();
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // Last: it sees all of the above.
};

}  // namespace shardline
