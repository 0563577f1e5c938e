#pragma once

// How many drafts pay, from a cost table and the chance of each.
//
// A round of n rows costs step + n * row. Rows ride nearly for free until they cost as much as the
// step itself, and never beyond: free rows are ceil(step / row) less those planned. Of these as
// many carry drafts as raise the tokens per unit of time: each draft must be likelier than the
// share of the round's time that its row takes.
//
// Prices come from the table alone, so how much is drafted depends on the text and on nobody's
// load; with `timed` they follow the measured laps instead. Either way no output depends on it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/time/time.h"
#include "node/rounds/proposer.h"

namespace shardline {

// What a lap costs in the route: the cost table.
struct LapCost {
  absl::Duration step;  // Of a lap without rows,
  absl::Duration row;   // and of each row. Zero: unknown.
};

// For routes that were not measured: a row costs a sixth of a step.
inline constexpr LapCost kLapCostDefault = {absl::Milliseconds(6), absl::Milliseconds(1)};

struct DraftPricerOptions {
  bool timed = false;
  int32_t drafts_max = 15;  // Of one row; it and they are one lm_head batch.
};

class DraftPricer {
 public:
  DraftPricer(const DraftPricerOptions& options, LapCost cost);

  // How many of `drafts`, from the first on, are worth a row each in a round of `rows_planned`
  // other rows, this attempt's sampled token included.
  size_t Price(std::span<const Draft> drafts, int32_t rows_planned) const;

  // Rows that a round of `rows_planned` still takes for drafts; at most drafts_max.
  int32_t FreeRows(int32_t rows_planned) const;

  // A lap with `rows` rows took `took`. Of use only if timed.
  void Observe(int32_t rows, absl::Duration took);

  const LapCost& cost() const { return cost_; }

 private:
  const DraftPricerOptions options_;
  LapCost cost_;
  absl::Duration lone_;  // Smoothed laps of one row; zero: none yet.
};

}  // namespace shardline
