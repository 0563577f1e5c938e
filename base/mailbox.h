#pragma once

// A bounded queue between threads that never blocks the poster.
//
// Full means "no" now instead of latency later: the caller answers kOverloaded. Close() lets the
// takers drain what is there and then see the end. Any number of posters and takers, any thread.

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace shardline {

template <typename T>
class Mailbox {
 public:
  // REQUIRES: items_max > 0.
  explicit Mailbox(size_t items_max) : items_max_(items_max) { SL_CHECK(items_max > 0); }

  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Queues `item` unless the mailbox is full or closed; says whether it did. On false `item` is
  // untouched.
  [[nodiscard]] bool TryPost(T&& item) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (closed_ || items_.size() >= items_max_) return false;
    items_.push_back(std::move(item));
    return true;
  }
  [[nodiscard]] bool TryPost(const T& item) { return TryPost(T(item)); }

  // The oldest item; waits for one up to `timeout`. Empty after the timeout, or when the mailbox
  // is closed and drained.
  std::optional<T> Take(absl::Duration timeout = absl::InfiniteDuration())
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &Mailbox::HasItemOrClosed), timeout);
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }

  bool closed() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return closed_;
  }

  size_t size() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return items_.size();
  }

 private:
  bool HasItemOrClosed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !items_.empty();
  }

  const size_t items_max_;

  mutable absl::Mutex mu_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace shardline
