#pragma once

// A head whose ring and device are in the test's hands: bundles come back when it says so, whole
// or row by row, and every token drawn is the one it names.

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "node/rounds/head_core.h"

namespace shardline::testing {

class HeadRig {
 public:
  explicit HeadRig(HeadOptions options) : head_(Complete(std::move(options))) {}

  static RunAttempt Run(uint64_t session, int32_t prompt_tokens, int32_t new_tokens);
  static AttemptKey KeyOf(uint64_t session) { return {SessionId(session), Epoch(1)}; }

  HeadCore& head() { return head_; }
  Instant now() const { return now_; }
  void Pass(absl::Duration time) { now_ = now_ + time; }

  absl::Status Start(RunAttempt run);

  // The bundles in the ring, oldest first; jobs at the device.
  std::deque<StageBundle>& ring() { return ring_; }
  std::deque<ComputeJob>& jobs() { return jobs_; }

  // Rows [first, first + count) of the oldest bundle come back, the rest stays; all by default.
  void ReturnOldest(size_t first = 0, size_t count = SIZE_MAX);
  // A row of the oldest bundle fails.
  void FailOldest(size_t index, FailureKind kind = FailureKind::kNonFinite);
  void FinishJob();
  // Does all there is to do, until the ring is empty.
  void RunOut();
  // Takes what the head wants done; every call above does.
  void Collect();

  const std::map<AttemptKey, std::vector<AttemptEnd>>& ends() const { return ends_; }
  const std::map<AttemptKey, std::vector<int32_t>>& tokens() const { return tokens_; }
  const std::vector<BundleRow>& sent() const { return sent_; }  // Every row ever.
  const std::vector<ProgressOut>& progress() const { return progress_; }
  uint64_t rounds_sent() const { return rounds_sent_; }

 private:
  static HeadOptions Complete(HeadOptions options);

  HeadCore head_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  std::deque<StageBundle> ring_;
  std::deque<ComputeJob> jobs_;
  std::map<AttemptKey, std::vector<AttemptEnd>> ends_;
  std::map<AttemptKey, std::vector<int32_t>> tokens_;
  std::vector<BundleRow> sent_;
  std::vector<ProgressOut> progress_;
  uint64_t rounds_sent_ = 0;
};

}  // namespace shardline::testing
