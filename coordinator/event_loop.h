#pragma once

// The coordinator's loop: a strand, and what is done after each event.
//
// Everything that the cores own is touched from here only. After each event one hook runs; the
// coordinator carries out in it what the cores have decided.

#include <functional>
#include <utility>

#include "base/strand.h"

namespace shardline {

class EventLoop {
 public:
  // REQUIRES: tasks_max > 0.
  explicit EventLoop(size_t tasks_max) : strand_(tasks_max) {}

  // Before the first Post.
  void SetAfterEach(std::function<void()> hook) { after_each_ = std::move(hook); }

  // For what strangers send: false when the loop is full or closed.
  [[nodiscard]] bool TryPost(Strand::Task task) { return strand_.TryPost(Wrap(std::move(task))); }

  // For answers to what we asked, whose number is bounded by the asking. Dropped when closed.
  void Post(Strand::Task task) { strand_.Post(Wrap(std::move(task))); }

  // Returns once nothing runs and nothing will.
  void Close() { strand_.Close(); }

 private:
  Strand::Task Wrap(Strand::Task task) {
    return [this, task = std::move(task)]() mutable {
      task();
      after_each_();
    };
  }

  Strand strand_;
  std::function<void()> after_each_;
};

}  // namespace shardline
