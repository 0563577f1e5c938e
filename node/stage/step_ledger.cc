#include "node/stage/step_ledger.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "node/stage/step_chain.h"

namespace shardline {

absl::Status StepLedger::Fail(FailureKind kind, StepIndex step, const std::string& what) const {
  return MakeFailure(
      FailureDetail{
          .kind = kind, .session = attempt_.session, .epoch = attempt_.epoch, .step = step},
      absl::StrCat("session ", attempt_.session.value(), " epoch ", attempt_.epoch.value(),
                   " step ", step.value(), ": ", what));
}

absl::Status StepLedger::CheckCopy(const Taken& known, StepIndex step, uint64_t digest,
                                   std::optional<uint64_t> chain, const char* state) const {
  if (Planted(PlantedBug::kStepDigestIgnored)) return absl::OkStatus();
  if (known.digest != digest) {
    return Fail(FailureKind::kStepConflict, step, absl::StrCat(state, " with other content"));
  }
  if (chain.has_value() && known.chain != *chain) {
    return Fail(FailureKind::kStepConflict, step, absl::StrCat(state, " after other steps"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepVerdict> StepLedger::Judge(StepIndex step, uint64_t digest,
                                              std::optional<uint64_t> chain) const {
  // Foreign numbers are compared as ranges before any arithmetic on them.
  if (step < next_) {
    const uint64_t age = next_.value() - step.value();
    if (age > done_.size()) {
      return Fail(
          FailureKind::kUncertain, step,
          absl::StrCat("applied, but its output is no longer kept; next is ", next_.value()));
    }
    const Taken& known = done_[done_.size() - age].taken;
    SL_RETURN_IF_ERROR(CheckCopy(known, step, digest, chain, "was applied"));
    return StepVerdict::kReplay;
  }
  const uint64_t ahead = step.value() - next_.value();
  if (ahead < running_.size()) {
    SL_RETURN_IF_ERROR(CheckCopy(running_[ahead], step, digest, chain, "is computing"));
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
  if (chain.has_value() && *chain != chain_taken()) {
    return Fail(FailureKind::kStepConflict, step, "comes after other steps than were taken here");
  }
  return StepVerdict::kRun;
}

void StepLedger::Begin(StepIndex step, uint64_t digest) {
  SL_CHECK(step == taken());
  SL_CHECK(running_.size() < kStepsInFlightMax);
  const uint64_t chain = chain_taken();
  running_.push_back(
      {.digest = digest, .chain = chain, .chain_after = ChainNext(chain, step, digest)});
}

void StepLedger::Commit(StepIndex step, StepOutput output) {
  SL_CHECK(step == next_);
  SL_CHECK(!running_.empty());
  chain_ = running_.front().chain_after;
  done_.push_back({.taken = running_.front(), .output = std::move(output)});
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
