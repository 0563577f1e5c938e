#pragma once

// Lets each step of one attempt change the KV exactly once, however often it arrives.
//
// A route re-sends whatever it has no answer for. The ledger sorts the copies from the new steps:
// steps run in order, up to kStepsInFlightMax at once; the outputs of the last kOutputsRetained
// committed steps are kept, so that a lost answer can be given again without computing.
//
// Holds no clock and no KV. Not thread-safe: lives on the shard's loop thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/failure.h"
#include "base/id.h"

namespace shardline {

// W_out: completed outputs kept for re-send, and the depth a sender may run ahead by. Equal, so
// that whatever a sender still waits for can be re-sent.
inline constexpr size_t kOutputsRetained = 2;
inline constexpr size_t kStepsInFlightMax = kOutputsRetained;

// What a step left behind: `token_count` rows of `hidden`, from `row` on.
struct StepOutput {
  BufferRef hidden;
  int32_t row = 0;
  int32_t position = 0;
  int32_t token_count = 0;
  uint32_t flags = 0;
};

enum class StepVerdict {
  kRun,       // New and next in line: Begin it, then Commit or AbandonFrom.
  kInFlight,  // A copy of a step that is computing: the answer is coming.
  kReplay,    // A copy of a committed step: send OutputOf again.
};

class StepLedger {
 public:
  explicit StepLedger(AttemptKey attempt) : attempt_(attempt) {}

  // Judges one arrival and changes nothing. kStepConflict for a gap, for another content under
  // the key of a known step, and when too many steps are in flight; kUncertain for a copy of a
  // step whose output is no longer kept.
  absl::StatusOr<StepVerdict> Judge(StepIndex step, uint64_t digest) const;

  // Takes the step that Judge told to run. REQUIRES: Judge said kRun.
  void Begin(StepIndex step, uint64_t digest);

  // The oldest step in flight was applied. REQUIRES: `step` is that one.
  void Commit(StepIndex step, StepOutput output);

  // `step` and every later one in flight were certainly not applied; `step` may come again.
  void AbandonFrom(StepIndex step);

  // REQUIRES: Judge said kReplay.
  const StepOutput& OutputOf(StepIndex step) const;

  // True if `step` is computing.
  bool InFlight(StepIndex step) const;
  // The steps whose outputs are kept: [first, next).
  StepIndex first_retained() const { return StepIndex(next_.value() - done_.size()); }
  // The oldest step that is not committed.
  StepIndex next() const { return next_; }
  size_t retained_count() const { return done_.size(); }

 private:
  struct Done {
    uint64_t digest = 0;
    StepOutput output;
  };

  absl::Status Fail(FailureKind kind, StepIndex step, const std::string& what) const;

  const AttemptKey attempt_;
  StepIndex next_;
  std::deque<uint64_t> running_;  // Digests of steps next_, next_ + 1, …
  std::deque<Done> done_;         // Steps …, next_ - 2, next_ - 1.
};

}  // namespace shardline
