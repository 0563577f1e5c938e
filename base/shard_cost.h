#pragma once

// What computing costs a shard, measured once at load: the numbers from which the coordinator
// decides how many rounds a route keeps in flight, and the head how many drafts are worth a try.

#include "absl/time/time.h"

namespace shardline {

// Zero: not measured.
struct ShardCost {
  absl::Duration step;         // A pass through the layers, whatever its rows: reading the weights,
  absl::Duration row;          // and each row on top.
  absl::Duration finish_step;  // At the head: norm, lm_head and sampling, the same way.
  absl::Duration finish_row;

  friend bool operator==(const ShardCost&, const ShardCost&) = default;
};

}  // namespace shardline
