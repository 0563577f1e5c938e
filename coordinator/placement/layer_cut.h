#pragma once

// The best cut of a model's layers over nodes in a given order, and what a shard costs.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/layer_range.h"
#include "coordinator/placement/placement.h"

namespace shardline {

// Weights of a shard; on the head with embedding and output matrix.
uint64_t ShardWeightBytes(const ModelCost& model, LayerRange layers, bool is_head);
// Weights, KV and scratch: what the node must have free.
uint64_t ShardBytes(const ModelCost& model, LayerRange layers, bool is_head);
// Bytes read for one token over the node's read speed.
double ShardSeconds(const ModelCost& model, const NodeCost& node, LayerRange layers, bool is_head);

struct LayerCut {
  std::vector<LayerRange> ranges;  // One a node, in order, none empty.
  double slowest_s = 0;
  double total_s = 0;
};

// `order[0]` is the head. Among all cuts that fit, one with the smallest slowest stage, and among
// those one with the smallest sum. Empty when none fits. O(nodes x layers^2).
std::optional<LayerCut> CutLayers(const ModelCost& model,
                                  const std::vector<const NodeCost*>& order);

}  // namespace shardline
