#pragma once

// Runs tasks one at a time, in the order posted, on the threads that post them.
//
// The loop of a shard: whoever posts while the strand is idle runs its task at once, so an event
// costs no thread wake-up; whoever posts while it is busy leaves the task to the runner. Tasks
// must be short and must not block, since a gRPC reaction may be the one that runs them. A task
// may post (its task runs after it). docs/decisions/0002 says why this is not a thread.
//
// Bounded: a full strand refuses. After Close() everything is refused, and Close() returns once
// no task runs, except when it is called from a task of this strand.

#include <cstddef>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace shardline {

class Strand {
 public:
  using Task = absl::AnyInvocable<void()>;

  // REQUIRES: tasks_max > 0.
  explicit Strand(size_t tasks_max);
  ~Strand();

  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Runs or queues `task`; false, and the task is dropped, when the strand is full or closed.
  [[nodiscard]] bool TryPost(Task task) ABSL_LOCKS_EXCLUDED(mu_);

  // As TryPost, but beyond the bound: for events whose number is bounded elsewhere (a finished
  // computation, the end of a stream) and which must not be lost. False only when closed.
  bool Post(Task task) ABSL_LOCKS_EXCLUDED(mu_);

  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool Enqueue(Task task, size_t tasks_max) ABSL_LOCKS_EXCLUDED(mu_);

  const size_t tasks_max_;

  absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread::id runner_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
