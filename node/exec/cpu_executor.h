#pragma once

// The CPU as a device: one thread that owns the forward pass and runs jobs in order.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "node/exec/executor.h"
#include "node/exec/llama_forward.h"

namespace shardline {

struct CpuExecutorOptions {
  int32_t jobs_max = 64;  // Queued, the running one not counted.
};

class CpuExecutor : public DeviceExecutor {
 public:
  // `clock` is not owned and outlives the executor.
  CpuExecutor(std::unique_ptr<LlamaForward> forward, const Clock* clock,
              const CpuExecutorOptions& options);
  ~CpuExecutor() override;

  absl::Status Submit(ComputeJob job, DoneCallback done) override;
  void Rest() override;
  ExecutorProgress progress() const override;
  void Shutdown() override;

 private:
  struct Item {
    ComputeJob job;
    DoneCallback done;
  };

  void Loop();
  ComputeDone Run(const ComputeJob& job);
  absl::Status RunLayers(const ComputeJob& job, ComputeDone& done);
  absl::Status RunFinish(const ComputeJob& job, ComputeDone& done);
  // body(i) for each i below `count`, spread over the pool.
  void ForEach(int64_t count, absl::FunctionRef<void(int64_t i)> body);
  // kNonFinite, naming the row and the layers, if rows [begin, begin + count) are not all finite.
  absl::Status CheckFinite(const float* hidden, int32_t begin, int32_t count) const;

  const Clock* const clock_;
  const CpuExecutorOptions options_;
  const std::unique_ptr<LlamaForward> forward_;
  ThreadPool* const pool_;  // The forward pass's; may be null.

  // Owned by the device thread.
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> rows_;
  std::vector<size_t> firsts_;  // Of each target, in rows_.
  std::vector<float> logits_;   // [kLogitsRows, vocab] at the head.

  Mailbox<Item> items_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> jobs_submitted_ = 0;
  std::atomic<uint64_t> jobs_started_ = 0;
  std::atomic<uint64_t> jobs_done_ = 0;
  std::atomic<uint64_t> rows_done_ = 0;

  std::thread thread_;  // Last: it sees all of the above.
};

}  // namespace shardline
