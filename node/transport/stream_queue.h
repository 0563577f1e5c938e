#pragma once

// What is waiting to be written on a stream with one write outstanding: a bounded queue and the
// rule who writes next. Plain state, guarded by its owner's mutex.

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace shardline {

// Usage: under the lock, Push and then TakeNext; outside it, StartWrite what TakeNext gave; in
// OnWriteDone, under the lock, WriteDone and TakeNext again. After End nothing more is accepted,
// and Finish is due, once, when TakeEnd says so.
template <typename Message>
class StreamQueue {
 public:
  explicit StreamQueue(size_t waiting_max) : waiting_max_(waiting_max) {}

  // False when the queue is full or the stream is ending.
  [[nodiscard]] bool Push(Message message) {
    if (ending_ || waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(message));
    return true;
  }

  // The next message to write, if no write is under way.
  std::optional<Message> TakeNext() {
    if (writing_ || ended_ || waiting_.empty()) return std::nullopt;
    std::optional<Message> message(std::move(waiting_.front()));
    waiting_.pop_front();
    writing_ = true;
    return message;
  }

  // A failed write means that the rest cannot be written either.
  void WriteDone(bool ok) {
    writing_ = false;
    if (!ok) waiting_.clear();
  }

  // Nothing more is accepted; with `drop`, what waits is not written.
  void End(bool drop) {
    ending_ = true;
    if (drop) waiting_.clear();
  }

  // True exactly once: when ended and all written.
  [[nodiscard]] bool TakeEnd() {
    if (!ending_ || ended_ || writing_ || !waiting_.empty()) return false;
    ended_ = true;
    return true;
  }

  bool ending() const { return ending_; }
  size_t waiting_count() const { return waiting_.size(); }

 private:
  const size_t waiting_max_;
  std::deque<Message> waiting_;
  bool writing_ = false;
  bool ending_ = false;
  bool ended_ = false;
};

}  // namespace shardline
