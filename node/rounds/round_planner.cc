#include "node/rounds/round_planner.h"

#include <algorithm>

#include "base/check.h"

namespace shardline {
namespace {

// Takes rows until the bundle is full.
class Builder {
 public:
  explicit Builder(const RoundLimits& limits) : limits_(limits) {}

  bool Fits(int32_t token_count) const {
    return rows_ < limits_.rows_max && token_count <= tokens_left();
  }
  int32_t tokens_left() const { return limits_.tokens_max - tokens_; }

  void Add(RoundPlan& plan, RoundRow row) {
    ++rows_;
    tokens_ += row.token_count;
    plan.rows.push_back(row);
  }

 private:
  const RoundLimits& limits_;
  int32_t rows_ = 0;
  int32_t tokens_ = 0;
};

// The m-th part of those that decode, and whoever m - 1 rounds left behind: they stand in front.
void TakeReady(const LaneView& view, Builder& builder, RoundPlan& plan) {
  const int32_t share = DecodeRowsMax(view);
  const auto patience = static_cast<uint64_t>(view.rounds_in_flight_max - 1);
  int32_t taken = 0;
  for (const ReadyRow& row : view.ready) {
    if (taken >= share && row.rounds_waited < patience) return;
    if (!builder.Fits(row.token_count)) return;
    builder.Add(plan, {.attempt = row.attempt,
                       .step = row.step,
                       .kind = row.kind,
                       .position = row.position,
                       .token_count = row.token_count,
                       .rejected = row.rejected,
                       .slot = row.slot});
    ++taken;
  }
}

void TakePieces(const LaneView& view, const RoundLimits& limits, Builder& builder,
                RoundPlan& plan) {
  int32_t budget =
      view.decoding_count > 0 ? limits.piece_tokens_decoding : limits.piece_tokens_idle;
  for (const FillingPrompt& prompt : view.filling) {
    const int32_t count =
        std::min({prompt.tokens_left, limits.piece_tokens_max, budget, builder.tokens_left()});
    if (count < 1 || !builder.Fits(count)) return;
    const bool is_last = count == prompt.tokens_left;
    builder.Add(plan, {.attempt = prompt.attempt,
                       .step = prompt.step,
                       .kind = is_last ? RoundRowKind::kFinal : RoundRowKind::kPiece,
                       .position = prompt.position,
                       .token_count = count,
                       .slot = is_last ? prompt.slot : -1});
    budget -= count;
  }
}

}  // namespace

int32_t DecodeRowsMax(const LaneView& view) {
  SL_CHECK(view.rounds_in_flight_max > 0);
  const int32_t share =
      (view.decoding_count + view.rounds_in_flight_max - 1) / view.rounds_in_flight_max;
  return std::max(share, 1);
}

RoundPlan ComposeRound(const LaneView& view, const RoundLimits& limits) {
  RoundPlan plan{.lane = view.lane};
  plan.rows.reserve(
      std::min(view.ready.size() + view.filling.size(), static_cast<size_t>(limits.rows_max)));
  Builder builder(limits);
  TakeReady(view, builder, plan);
  TakePieces(view, limits, builder, plan);
  return plan;
}

}  // namespace shardline
