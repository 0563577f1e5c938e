#pragma once

// A plan with all that the nodes must be told to load it: what the store remembers of a model.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/layer_range.h"
#include "coordinator/model_file.h"
#include "coordinator/placement/placement.h"
#include "coordinator/routing/plan.h"
#include "shardline/v1/join.pb.h"

namespace shardline {

struct ModelWish {
  std::string name;                // Empty: the file's.
  int32_t context_tokens_max = 0;  // 0: the model's, at most what memory allows.
  int32_t shards = 0;              // 0: the fewest that fit.
  std::vector<LayerRange> ranges;
  int32_t sessions_max = 0;      // 0: 4.
  int32_t replicas = 0;          // Nodes that hold each range; 0: 1.
  int32_t chunk_tokens_max = 0;  // Of a prompt that a stage takes at once; 0: 256.

  friend bool operator==(const ModelWish&, const ModelWish&) = default;
};

struct ModelPlan {
  Plan plan;         // Its epoch is the store's.
  std::string path;  // Of the model, on the coordinator's machine.
  int32_t context_tokens_max = 0;
  int32_t sessions_max = 0;
  int32_t kv_pages = 0;
  int32_t chunk_tokens_max = 0;
  ModelWish wish;  // What it was made from, for the next one.
};

// Places the model on `nodes`. Without a wish for the context it is halved until it fits. Fails
// as Place, with the arithmetic of every node, or with kInvalidRequest when the wish is for more
// context than the model has.
struct PlacedModel {
  ModelPlan plan;
  std::string explanation;  // One line a shard.
  // As plan.plan.shards, with their costs; empty when some shards stay where they were.
  std::vector<PlacedShard> costs = {};
};
absl::StatusOr<PlacedModel> PlaceModel(const ModelFile& file, const ModelWish& wish,
                                       absl::Span<const NodeCost> nodes);

// What a plan in force has become unable to do: ranges without a live node, or rings without a
// sound link.
struct PlanLoss {
  std::vector<LayerRange> lost;
  std::vector<AvoidedLink> avoid_links;
};

// The plan that takes the place of `in_force`. `idle` nodes hold nothing, `usable` ones nothing
// but shards of this model, those that are idle included. The lost ranges go to idle nodes with
// room, one each, and all others stay; else the whole model is placed anew over the usable ones,
// with what was wished as far as it can be had: context (as in force, then less unless it was
// asked for), ranges, shards, replicas. Fails as Place does for the least of these wishes.
absl::StatusOr<PlacedModel> PlaceAgain(const ModelFile& file, const ModelPlan& in_force,
                                       const PlanLoss& loss, const std::vector<NodeCost>& idle,
                                       const std::vector<NodeCost>& usable);

// For the store. Parse gives only what Serialize can have written; else data loss.
std::string SerializeModelPlan(const ModelPlan& plan);
absl::StatusOr<ModelPlan> ParseModelPlan(PlanEpoch epoch, std::string_view text);

// The order to the node of shard `shard_index`.
v1::LoadShard LoadShardFor(const ModelPlan& plan, const ModelFile& file, size_t shard_index);

}  // namespace shardline
