#include "node/rounds/draft_pricer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace shardline {
namespace {

// A draft must be worth so much more than its row costs: chances are estimates.
constexpr double kMargin = 1.125;
// Weight of the latest lap in what is smoothed.
constexpr double kLatest = 0.125;

bool IsKnown(const LapCost& cost) {
  return cost.step > absl::ZeroDuration() && cost.row > absl::ZeroDuration();
}

absl::Duration Smoothed(absl::Duration before, absl::Duration latest) {
  return before + kLatest * (latest - before);
}

}  // namespace

DraftPricer::DraftPricer(const DraftPricerOptions& options, LapCost cost)
    : options_(options), cost_(IsKnown(cost) ? cost : kLapCostDefault) {
  SL_CHECK(options.drafts_max >= 0);
}

int32_t DraftPricer::FreeRows(int32_t rows_planned) const {
  const double rows = std::ceil(absl::FDivDuration(cost_.step, cost_.row));
  const double free = std::clamp(rows - rows_planned, 0.0, double{1 << 20});
  return std::min(static_cast<int32_t>(free), options_.drafts_max);
}

size_t DraftPricer::Price(std::span<const Draft> drafts, int32_t rows_planned) const {
  const double row = absl::ToDoubleSeconds(cost_.row);
  const auto limit = std::min(drafts.size(), static_cast<size_t>(FreeRows(rows_planned)));
  double tokens = rows_planned;
  double time = absl::ToDoubleSeconds(cost_.step) + rows_planned * row;
  double chance = 1.0;
  size_t count = 0;
  while (count < limit) {
    chance *= drafts[count].chance;
    if (chance * time < kMargin * tokens * row) break;
    tokens += chance;
    time += row;
    ++count;
  }
  return count;
}

void DraftPricer::Observe(int32_t rows, absl::Duration took) {
  if (!options_.timed || rows < 1 || took <= absl::ZeroDuration()) return;
  if (rows == 1) {
    lone_ = lone_ == absl::ZeroDuration() ? took : Smoothed(lone_, took);
    return;
  }
  if (lone_ == absl::ZeroDuration() || took <= lone_) return;
  const absl::Duration row = Smoothed(cost_.row, (took - lone_) / (rows - 1));
  cost_ = {.step = std::max(lone_ - row, row), .row = row};
}

}  // namespace shardline
