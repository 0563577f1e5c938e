#pragma once

// Counts the client calls whose reactors are alive, so that their owner can outlive the last one.
//
// Also keeps one channel alive. A reactor frees its channel on a thread of gRPC's callback queue,
// and gRPC 1.51 ends that queue with its last user by joining its threads: from one of them, that
// would be the end of the process. REQUIRES: destroyed on a thread of our own.

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace shardline {

// Any thread.
class CallCounter {
 public:
  void Add(std::shared_ptr<const void> channel) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (channel_ == nullptr) channel_ = std::move(channel);
    ++count_;
  }

  void Remove() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    SL_CHECK(count_ > 0);
    --count_;
  }

  // False if some call still lives after `timeout`.
  [[nodiscard]] bool AwaitZero(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return count_ == 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&none), timeout);
  }

 private:
  absl::Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const void> channel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
