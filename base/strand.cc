#include "base/strand.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace shardline {

Strand::Strand(size_t tasks_max) : tasks_max_(tasks_max) { SL_CHECK(tasks_max > 0); }

Strand::~Strand() { Close(); }

bool Strand::TryPost(Task task) { return Enqueue(std::move(task), tasks_max_); }

bool Strand::Post(Task task) {
  return Enqueue(std::move(task), std::numeric_limits<size_t>::max());
}

bool Strand::Enqueue(Task task, size_t tasks_max) {
  {
    absl::MutexLock lock(&mu_);
    if (closed_ || tasks_.size() >= tasks_max) return false;
    tasks_.push_back(std::move(task));
    if (running_) return true;
    running_ = true;
    runner_ = std::this_thread::get_id();
  }
  while (true) {
    Task next;
    {
      absl::MutexLock lock(&mu_);
      if (tasks_.empty()) {
        running_ = false;
        runner_ = {};
        return true;
      }
      next = std::move(tasks_.front());
      tasks_.pop_front();
    }
    next();
  }
}

void Strand::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  if (running_ && runner_ == std::this_thread::get_id()) return;
  auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !running_; };
  mu_.Await(absl::Condition(&idle));
}

}  // namespace shardline
