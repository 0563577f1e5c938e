#pragma once

// Lets each step of one attempt change the KV exactly once, however often it arrives.
//
// A route re-sends whatever it has no answer for. The ledger sorts the copies from the new steps:
// steps run in order, up to kStepsInFlightMax at once; the outputs of the last kOutputsRetained
// committed steps are kept, so that a lost answer can be given again without computing. With every
// step goes the chain over those before it, as this receiver has taken them: step_chain.h.
//
// Holds no clock and no KV. Not thread-safe: lives on the shard's loop thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/buffer.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "base/prefix_chain.h"

namespace shardline {

// W_out: completed outputs kept for re-send, and the depth a sender may run ahead by. Equal, so
// that whatever a sender still waits for can be re-sent.
inline constexpr size_t kOutputsRetained = 4;
inline constexpr size_t kStepsInFlightMax = kOutputsRetained;

// What a step left behind: `token_count` rows of `hidden`, from `row` on.
struct StepOutput {
  BufferRef hidden;
  int32_t row = 0;
  int32_t position = 0;
  int32_t token_count = 0;
  uint32_t flags = 0;
  PrefixKey prefix_key;                       // As BundleRow's, for the stages behind.
  int32_t rejected = 0;                       // Drafts of the step before it that were taken back.
  absl::Duration compute;                     // Of the stages up to this one,
  std::vector<absl::Duration> stage_compute;  // and by stage, if asked for.
  Instant deadline;                           // Not to be sent after it,
  absl::Duration budget_max;                  // nor with more time than this.
  uint64_t chain = 0;                         // Over all that was sent before it.
};

enum class StepVerdict {
  kRun,       // New and next in line: Begin it, then Commit or AbandonFrom.
  kInFlight,  // A copy of a step that is computing: the answer is coming.
  kReplay,    // A copy of a committed step: send OutputOf again.
};

class StepLedger {
 public:
  // `chain_start` is the chain before the first step.
  StepLedger(AttemptKey attempt, uint64_t chain_start) : attempt_(attempt), chain_(chain_start) {}

  // Judges one arrival and changes nothing. `chain` is what its sender has sent before; unset when
  // the sender keeps none. kStepConflict for a gap, for another content under the key of a known
  // step, for other steps before it, and when too many steps are in flight; kUncertain for a copy
  // of a step whose output is no longer kept.
  absl::StatusOr<StepVerdict> Judge(StepIndex step, uint64_t digest,
                                    std::optional<uint64_t> chain) const;

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
  // The first step that was not taken, and the chain over all that were.
  StepIndex taken() const { return StepIndex(next_.value() + running_.size()); }
  uint64_t chain_taken() const { return running_.empty() ? chain_ : running_.back().chain_after; }
  // The steps whose outputs are kept: [first, next).
  StepIndex first_retained() const { return StepIndex(next_.value() - done_.size()); }
  // The oldest step that is not committed.
  StepIndex next() const { return next_; }
  size_t retained_count() const { return done_.size(); }

 private:
  struct Taken {
    uint64_t digest = 0;
    uint64_t chain = 0;  // Over the steps before it.
    uint64_t chain_after = 0;
  };
  struct Done {
    Taken taken;
    StepOutput output;
  };

  absl::Status Fail(FailureKind kind, StepIndex step, const std::string& what) const;
  absl::Status CheckCopy(const Taken& known, StepIndex step, uint64_t digest,
                         std::optional<uint64_t> chain, const char* state) const;

  const AttemptKey attempt_;
  StepIndex next_;
  uint64_t chain_;             // Over the steps before next_.
  std::deque<Taken> running_;  // Steps next_, next_ + 1, …
  std::deque<Done> done_;      // Steps …, next_ - 2, next_ - 1.
};

}  // namespace shardline
