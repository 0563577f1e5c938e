#include "node/exec/measure_cost.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

// The fastest of the passes seen.
struct Fastest {
  absl::Duration layers = absl::InfiniteDuration();
  absl::Duration finish = absl::InfiniteDuration();
};

class Passes {
 public:
  Passes(LlamaForward& forward, const Clock& clock, int32_t rows_max)
      : forward_(forward), clock_(clock), contents_(forward.weights().contents) {
    const HyperParameters& hp = forward.weights().hp;
    hidden_.resize(static_cast<size_t>(rows_max) * static_cast<size_t>(hp.hidden_dim));
    tokens_.assign(static_cast<size_t>(rows_max), 0);
    rows_.resize(static_cast<size_t>(rows_max));
    std::iota(rows_.begin(), rows_.end(), 0);
    if (!contents_.head) return;
    logits_.resize(static_cast<size_t>(rows_max) * static_cast<size_t>(hp.vocab_size));
  }

  absl::Status Run(int32_t rows, Fastest& fastest) {
    const auto count = static_cast<size_t>(rows);
    const SequenceSlice slice = {.first_row = 0, .row_count = rows, .position = 0, .pages = &page_};
    std::fill(hidden_.begin(), hidden_.end(), 0.01F);
    const Instant begin = clock_.Now();
    if (contents_.embedding) {
      SL_RETURN_IF_ERROR(forward_.Embed(std::span(tokens_).first(count), hidden_.data()));
    }
    SL_RETURN_IF_ERROR(forward_.RunLayers({&slice, 1}, hidden_.data()));
    const Instant layers_done = clock_.Now();
    fastest.layers = std::min(fastest.layers, layers_done - begin);
    if (!contents_.head) return absl::OkStatus();
    SL_RETURN_IF_ERROR(
        forward_.Finish(hidden_.data(), std::span(rows_).first(count), logits_.data()));
    fastest.finish = std::min(fastest.finish, clock_.Now() - layers_done);
    return absl::OkStatus();
  }

 private:
  LlamaForward& forward_;
  const Clock& clock_;
  const ShardContents contents_;
  const int32_t page_ = 0;
  std::vector<float> hidden_;
  std::vector<float> logits_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> rows_;
};

// Time of one row = step + row; of `rows` = step + rows x row.
void Split(absl::Duration one, absl::Duration many, int32_t rows, absl::Duration& step,
           absl::Duration& row) {
  row = std::max(absl::ZeroDuration(), (many - one) / (rows - 1));
  step = std::max(one - row, absl::Nanoseconds(1));
}

}  // namespace

absl::StatusOr<ShardCost> MeasureCost(LlamaForward& forward, const Clock& clock,
                                      const MeasureCostOptions& options) {
  SL_CHECK(options.rows > 1);
  SL_CHECK(options.rows <= kPageTokens);
  const int32_t rows = std::min(options.rows, forward.context_tokens_max());
  Passes passes(forward, clock, rows);
  Fastest one;
  Fastest many;
  const Instant begin = clock.Now();
  for (int pass = 0; pass < options.passes_max; ++pass) {
    if (pass > 0 && clock.Now() - begin > options.limit) break;
    SL_RETURN_IF_ERROR(passes.Run(1, one));
    if (rows == 1 || clock.Now() - begin > options.limit) break;
    SL_RETURN_IF_ERROR(passes.Run(rows, many));
  }
  if (many.layers == absl::InfiniteDuration()) many = one;
  ShardCost cost;
  Split(one.layers, many.layers, std::max(rows, 2), cost.step, cost.row);
  if (forward.weights().contents.head) {
    Split(one.finish, many.finish, std::max(rows, 2), cost.finish_step, cost.finish_row);
  }
  return cost;
}

}  // namespace shardline
