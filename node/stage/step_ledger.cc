#include "node/stage/step_ledger.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"

namespace shardline {

absl::Status StepLedger::Fail(FailureKind kind, StepIndex step, const std::string& what) const {
  return MakeFailure(
      FailureDetail{
          .kind = kind, .session = attempt_.session, .epoch = attempt_.epoch, .step = step},
      absl::StrCat("session ", attempt_.session.value(), " epoch ", attempt_.epoch.value(),
                   " step ", step.value(), ": ", what));
}

absl::StatusOr<StepVerdict> StepLedger::Judge(StepIndex step, uint64_t digest) const {
  // Foreign numbers are compared as ranges before any arithmetic on them.
  if (step < next_) {
    const uint64_t age = next_.value() - step.value();
    if (age > done_.size()) {
      return Fail(
          FailureKind::kUncertain, step,
          absl::StrCat("applied, but its output is no longer kept; next is ", next_.value()));
    }
    if (done_[done_.size() - age].digest != digest) {
      return Fail(FailureKind::kStepConflict, step, "was applied with other content");
    }
    return StepVerdict::kReplay;
  }
  const uint64_t ahead = step.value() - next_.value();
  if (ahead < running_.size()) {
    if (running_[ahead] != digest) {
      return Fail(FailureKind::kStepConflict, step, "is computing with other content");
    }
    return StepVerdict::kInFlight;
  }
  if (ahead > running_.size()) {
    return Fail(FailureKind::kStepConflict, step,
                absl::StrCat("leaves a gap; next is ", next_.value() + running_.size()));
  }
  if (running_.size() >= kStepsInFlightMax) {
    return Fail(FailureKind::kStepConflict, step,
                absl::StrCat("runs ahead of the ", kStepsInFlightMax, " steps in flight"));
  }
  return StepVerdict::kRun;
}

void StepLedger::Begin(StepIndex step, uint64_t digest) {
  SL_CHECK(step.value() == next_.value() + running_.size());
  SL_CHECK(running_.size() < kStepsInFlightMax);
  running_.push_back(digest);
}

void StepLedger::Commit(StepIndex step, StepOutput output) {
  SL_CHECK(step == next_);
  SL_CHECK(!running_.empty());
  done_.push_back({.digest = running_.front(), .output = std::move(output)});
  running_.pop_front();
  if (done_.size() > kOutputsRetained) done_.pop_front();
  next_ = next_.Next();
}

void StepLedger::AbandonFrom(StepIndex step) {
  if (step < next_) return;
  const uint64_t kept = step.value() - next_.value();
  if (kept < running_.size()) running_.resize(kept);
}

const StepOutput& StepLedger::OutputOf(StepIndex step) const {
  SL_CHECK(step < next_);
  SL_CHECK(next_.value() - step.value() <= done_.size());
  return done_[done_.size() - (next_.value() - step.value())].output;
}

bool StepLedger::InFlight(StepIndex step) const {
  return step >= next_ && step.value() - next_.value() < running_.size();
}

}  // namespace shardline
