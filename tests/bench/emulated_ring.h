#pragma once

// A coordinator and nodes whose devices are emulated, so that each has hardware of its own;
// everything else is real: processes, gRPC links on loopback, ledger.

#include <memory>
#include <string>

#include "base/shard_cost.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {

struct EmulatedRingOptions {
  int stages = 3;
  ShardCost layer_cost;  // Of each of kEmulatedLayers.
  uint32_t sessions_max = 64;
  uint32_t context_tokens_max = 512;
};
inline constexpr int kEmulatedLayers = 6;
inline constexpr int kEmulatedHiddenDim = 1024;

// Dies, with the reason, when the model does not become ready.
std::unique_ptr<testing::Cluster> StartEmulatedRing(const EmulatedRingOptions& options);

}  // namespace shardline::bench
