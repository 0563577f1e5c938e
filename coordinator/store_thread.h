#pragma once

// The store, on the one thread that may wait for its disk.

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/synchronization/notification.h"
#include "coordinator/event_loop.h"
#include "coordinator/store/store.h"
#include "coordinator/task_thread.h"

namespace shardline {

class StoreThread {
 public:
  // `loop` outlives this.
  StoreThread(std::unique_ptr<Store> store, EventLoop* loop)
      : store_(std::move(store)), loop_(loop) {}

  // Runs `work` on the store's thread, then `then` with its result on the loop. After Stop
  // neither runs.
  template <typename Work, typename Then>
  void Run(Work work, Then then) {
    thread_.Post([this, work = std::move(work), then = std::move(then)]() mutable {
      auto result = work(*store_);
      loop_->Post([then = std::move(then), result = std::move(result)]() mutable {
        then(std::move(result));
      });
    });
  }

  // Runs `work` there; false, and it is dropped, after Stop.
  bool Post(absl::AnyInvocable<void(Store&)> work) {
    return thread_.Post([this, work = std::move(work)]() mutable { work(*store_); });
  }

  // Runs `work` there and waits for it; false after Stop. Never from the loop or a gRPC thread.
  bool RunAndWait(absl::AnyInvocable<void(Store&)> work) {
    absl::Notification done;
    const bool posted = thread_.Post([this, &work, &done] {
      work(*store_);
      done.Notify();
    });
    if (posted) done.WaitForNotification();
    return posted;
  }

  // Finishes what is queued: a record that was to be written is written.
  void Stop() { thread_.Stop(); }

 private:
  const std::unique_ptr<Store> store_;
  EventLoop* const loop_;
  TaskThread thread_;
};

}  // namespace shardline
