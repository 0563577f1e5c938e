#pragma once

// One thread that runs blocking work in order: a disk flush, a read of a whole model.

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace shardline {

class TaskThread {
 public:
  using Task = absl::AnyInvocable<void()>;

  TaskThread() : thread_([this] { Run(); }) {}
  ~TaskThread() { Stop(); }

  // False, and the task is dropped, after Stop. Callers bound what they have outstanding.
  bool Post(Task task) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (stopped_) return false;
    tasks_.push_back(std::move(task));
    return true;
  }

  // Finishes what is queued and ends the thread. Not from a task.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    while (true) {
      Task task;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(this, &TaskThread::HasWorkOrStopped));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  bool HasWorkOrStopped() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || !tasks_.empty();
  }

  absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace shardline
