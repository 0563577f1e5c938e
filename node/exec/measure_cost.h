#pragma once

// What a shard's jobs take on this machine, measured with the weights that will serve.

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/shard_cost.h"
#include "node/exec/llama_forward.h"

namespace shardline {

struct MeasureCostOptions {
  // No pass is begun after this long; one that runs is finished. A shard whose first pass takes
  // longer has been measured with that one: the price of its rows is then zero, not known.
  absl::Duration limit = absl::Milliseconds(250);
  int32_t rows = 16;       // Of the larger pass; 2 to kPageTokens.
  int32_t passes_max = 5;  // Of each.
};

// Passes of 1 row and of `rows` rows alternate; of each the fastest counts, as others may want the
// same cores. Writes to page 0 of the KV, which must not be in use. Fails with what a pass failed
// with.
absl::StatusOr<ShardCost> MeasureCost(LlamaForward& forward, const Clock& clock,
                                      const MeasureCostOptions& options);

}  // namespace shardline
