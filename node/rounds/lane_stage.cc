#include "node/rounds/lane_stage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"

namespace shardline {

absl::Status StagedSlots::Stage(const RoundPlan& plan) {
  held_.reserve(plan.rows.size());
  for (const RoundRow& row : plan.rows) {
    if (row.slot < 0) continue;  // It is not sampled from.
    const std::optional<SamplerLease> lease = lease_of_(row.attempt);
    if (!lease || lease->slot != row.slot || !slots_->Stands(*lease)) {
      Drop();
      return MakeFailure(
          FailureKind::kStepConflict,
          absl::StrCat("session ", row.attempt.session.value(), " does not hold slot ", row.slot));
    }
    (void)slots_->Use(*lease);
    held_.push_back(*lease);
  }
  staged_ = plan;
  return absl::OkStatus();
}

absl::Status StagedSlots::Check(const RoundPlan& plan) const {
  SL_RETURN_IF_ERROR(CheckStaged(staged_, plan));
  const bool all_stand = std::all_of(
      held_.begin(), held_.end(), [&](const SamplerLease& lease) { return slots_->Stands(lease); });
  if (all_stand || Planted(PlantedBug::kPromotesWhateverIsStaged)) return absl::OkStatus();
  return MakeFailure(FailureKind::kStepConflict, "a slot was given back since");
}

void StagedSlots::Drop() {
  for (const SamplerLease& lease : held_) slots_->Done(lease);
  held_.clear();
  staged_.reset();
}

absl::Status StagedRows::Stage(const RoundPlan& plan) {
  rows_.reserve(plan.rows.size());
  for (const RoundRow& row : plan.rows) {
    std::optional<RowHeader> header = header_of_(row);
    if (!header) {
      Drop();
      return MakeFailure(FailureKind::kStepConflict,
                         absl::StrCat("session ", row.attempt.session.value(),
                                      " sends another step than ", row.step.value(), " next"));
    }
    rows_.push_back(*std::move(header));
  }
  staged_ = plan;
  return absl::OkStatus();
}

absl::Status StagedRows::Check(const RoundPlan& plan) const { return CheckStaged(staged_, plan); }

void StagedRows::Promote() {
  promoted_ = std::exchange(rows_, {});
  staged_.reset();
}

void StagedRows::Drop() {
  rows_.clear();
  staged_.reset();
}

}  // namespace shardline
