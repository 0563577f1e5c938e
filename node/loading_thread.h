#pragma once

// Loads and frees shards, which takes as long as disk and device take, away from the strand.
//
// One load is wanted at most: a newer one takes the place of the one that waits, and stops the
// one that runs. What was given back is freed before anything else is loaded, so two shards are
// never in memory at once, and no more shards can wait to be freed than were ever loaded.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "node/shard_loader.h"

namespace shardline {

// Called on the loading thread. `ticket` is what Load returned.
struct LoadingEvents {
  std::function<void(uint64_t ticket, uint64_t bytes_done, uint64_t bytes_total)> on_progress;
  std::function<void(uint64_t ticket, absl::StatusOr<LoadedShard>)> on_loaded;
};

// Any thread.
class LoadingThread {
 public:
  // `loader` and `clock` outlive it.
  LoadingThread(ShardLoader* loader, const Clock* clock, LoadingEvents events);
  // Stops the load, and frees what was given back.
  ~LoadingThread();

  LoadingThread(const LoadingThread&) = delete;
  LoadingThread& operator=(const LoadingThread&) = delete;

  // Loads soon. An event of an older ticket may still be under way. Tickets are never 0.
  uint64_t Load(ShardOrder order) ABSL_LOCKS_EXCLUDED(mu_);

  // Loads nothing any more. An event may still be under way.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the device, then lets go of `executor`. REQUIRES: it came from on_loaded, and
  // whoever else holds it lets go as well.
  void Free(std::shared_ptr<DeviceExecutor> executor) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Wanted {
    uint64_t ticket = 0;
    ShardOrder order;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void LoadNow(const Wanted& wanted) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsWanted(uint64_t ticket) const ABSL_LOCKS_EXCLUDED(mu_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || waiting_ || !freeing_.empty();
  }

  ShardLoader* const loader_;
  const Clock* const clock_;
  const LoadingEvents events_;

  mutable absl::Mutex mu_;
  uint64_t tickets_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t wanted_ ABSL_GUARDED_BY(mu_) = 0;  // The ticket that is waiting or loading, or 0.
  std::optional<Wanted> waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<DeviceExecutor>> freeing_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // Last: it sees all of the above.
};

}  // namespace shardline
