#pragma once

// A device that takes time and does nothing: a job ends step + rows x row after it began, whatever
// else the machine is busy with, and its hidden state is a hash of what went in. With it the time
// that links, cores and threads take can be measured against devices of any speed.

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/instant.h"
#include "base/mailbox.h"
#include "base/shard_cost.h"
#include "node/exec/executor.h"
#include "node/shard_loader.h"

namespace shardline::testing {

struct EmulatedDeviceOptions {
  ShardCost cost;
  int32_t hidden_dim = 0;
  int32_t vocab_size = 0;
  uint64_t hang_after = UINT64_MAX;  // Jobs. The next never ends, not even by Shutdown.
};

// Jobs run one at a time in real time. One that waits begins when the one before it was due to
// end, so that a late wake-up of the thread is not added to the next job.
class EmulatedDevice : public DeviceExecutor {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options);
  ~EmulatedDevice() override;

  absl::Status Submit(ComputeJob job, DoneCallback done) override;
  void Rest() override {}
  ExecutorProgress progress() const override;
  void Shutdown() override;

 private:
  struct Item {
    ComputeJob job;
    DoneCallback done;
    Instant submitted;
  };

  void Loop();
  // Returns at `end`, or when the device is shut down.
  void AwaitEnd(Instant end);
  absl::Duration TimeOf(const ComputeJob& job) const;
  ComputeDone Run(const ComputeJob& job) const;
  void RunLayers(const ComputeJob& job, ComputeDone& done) const;
  void RunFinish(const ComputeJob& job, ComputeDone& done) const;

  const EmulatedDeviceOptions options_;
  Mailbox<Item> items_;
  absl::Notification stopped_;
  std::atomic<uint64_t> jobs_submitted_ = 0;
  std::atomic<uint64_t> jobs_started_ = 0;
  std::atomic<uint64_t> jobs_done_ = 0;
  std::thread thread_;  // Last: it sees all of the above.
};

// Shards of the ordered file's shape that are emulated: `layer_cost` for each layer's step and row,
// its finish costs at the head.
class EmulatedShardLoader : public ShardLoader {
 public:
  explicit EmulatedShardLoader(const ShardCost& layer_cost, int32_t hidden_dim)
      : layer_cost_(layer_cost), hidden_dim_(hidden_dim) {}

  absl::StatusOr<LoadedShard> Load(const ShardOrder& order, const Progress& progress) override;

  // Of devices loaded from here on.
  void HangAfter(uint64_t jobs) { hang_after_ = jobs; }

 private:
  const ShardCost layer_cost_;
  const int32_t hidden_dim_;
  uint64_t hang_after_ = UINT64_MAX;
};

}  // namespace shardline::testing
