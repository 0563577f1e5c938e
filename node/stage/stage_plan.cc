#include "node/stage/stage_plan.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace shardline {
namespace {

RoundRowKind KindOf(const BundleRow& row) {
  if ((row.flags & kRowWantsAllLogits) != 0) return RoundRowKind::kVerify;
  return (row.flags & kRowWantsLogits) != 0 ? RoundRowKind::kFinal : RoundRowKind::kPiece;
}

}  // namespace

RoundPlan PlanOf(const std::vector<BundleRow>& rows, uint64_t walk, uint64_t kv_generation) {
  RoundPlan plan{.walk = walk, .kv_generation = kv_generation};
  plan.rows.reserve(rows.size());
  for (const BundleRow& row : rows) {
    plan.rows.push_back({.attempt = row.key.attempt,
                         .step = row.key.step,
                         .kind = KindOf(row),
                         .position = row.position,
                         .token_count = row.token_count,
                         .rejected = row.rejected});
  }
  return plan;
}

absl::Status StagedPages::CheckRow(const RoundRow& row) const {
  // A row after wrong drafts begins where they are taken back to.
  const int64_t length = int64_t{row.position} + row.rejected;
  if (row.token_count < 1 || row.rejected < 0 || length != kv_->TakenLengthOf(row.attempt)) {
    return MakeFailure(FailureKind::kStepConflict,
                       absl::StrCat("session ", row.attempt.session.value(), ": ", row.token_count,
                                    " tokens at position ", row.position, " less ", row.rejected,
                                    " where ", kv_->TakenLengthOf(row.attempt), " are held"));
  }
  return absl::OkStatus();
}

absl::Status StagedPages::Stage(const RoundPlan& plan) {
  if (plan.kv_generation != kv_->generation()) {
    return MakeFailure(FailureKind::kStepConflict, "planned for other pages");
  }
  std::vector<std::vector<int32_t>> tables;
  tables.reserve(plan.rows.size());
  for (const RoundRow& row : plan.rows) {
    SL_RETURN_IF_ERROR(CheckRow(row));
    SL_ASSIGN_OR_RETURN(const std::span<const int32_t> table,
                        kv_->Resolve(row.attempt, kv_->LengthOf(row.attempt)));
    if (int64_t{row.position} + row.token_count >
        static_cast<int64_t>(table.size()) * kPageTokens) {
      return MakeFailure(FailureKind::kKvExhausted,
                         absl::StrCat("session ", row.attempt.session.value(), ": ",
                                      row.token_count, " tokens at position ", row.position,
                                      " pass the ", table.size(), " pages reserved"));
    }
    tables.emplace_back(table.begin(), table.end());
  }
  staged_ = plan;
  tables_ = std::move(tables);
  return absl::OkStatus();
}

absl::Status StagedPages::Check(const RoundPlan& plan) const {
  SL_RETURN_IF_ERROR(CheckStaged(staged_, plan));
  if (Planted(PlantedBug::kPromotesWhateverIsStaged)) return absl::OkStatus();
  if (plan.kv_generation != kv_->generation()) {
    return MakeFailure(FailureKind::kStepConflict, "the pages have changed hands");
  }
  for (const RoundRow& row : plan.rows) SL_RETURN_IF_ERROR(CheckRow(row));
  return absl::OkStatus();
}

void StagedPages::Promote() {
  promoted_ = std::exchange(tables_, {});
  staged_.reset();
}

void StagedPages::Drop() {
  staged_.reset();
  tables_.clear();
}

absl::Status StagedHeaders::Stage(const RoundPlan& plan) {
  rows_.reserve(arriving_.size());
  for (const BundleRow& row : arriving_) rows_.push_back(onward_(row));
  staged_ = plan;
  return absl::OkStatus();
}

absl::Status StagedHeaders::Check(const RoundPlan& plan) const {
  return CheckStaged(staged_, plan);
}

void StagedHeaders::Promote() {
  promoted_ = std::exchange(rows_, {});
  staged_.reset();
}

void StagedHeaders::Drop() {
  arriving_.clear();
  staged_.reset();
  rows_.clear();
}

}  // namespace shardline
