#include "coordinator/routing/plan.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/failure.h"

namespace shardline {

absl::Status ValidatePlan(const Plan& plan) {
  const auto invalid = [&plan](const std::string& what) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("plan of ", plan.model, ": ", what));
  };
  if (plan.model.empty()) return invalid("no model name");
  if (plan.epoch == PlanEpoch()) return invalid("no epoch");
  if (plan.shards.empty()) return invalid("no shards");
  std::set<NodeId> nodes;
  if (plan.replicas < 1) return invalid(absl::StrCat("replicas: ", plan.replicas));
  int32_t next = 0;
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    const PlannedShard& shard = plan.shards[i];
    if (shard.node.empty()) return invalid(absl::StrCat("shard ", i, " has no node"));
    if (!nodes.insert(shard.node).second) {
      return invalid(absl::StrCat(shard.node.value(), " has two shards"));
    }
    if (shard.is_head != (shard.layers.begin == 0)) {
      return invalid("the shards with layer 0, and no others, are heads");
    }
    if (i > 0 && shard.layers == plan.shards[i - 1].layers) continue;  // A replica.
    if (shard.layers.begin != next || shard.layers.empty()) {
      return invalid(absl::StrFormat("shard %d holds [%d, %d) and does not go on at layer %d", i,
                                     shard.layers.begin, shard.layers.end, next));
    }
    next = shard.layers.end;
  }
  if (next != plan.layer_count) {
    return invalid(absl::StrFormat("shards end at layer %d of %d", next, plan.layer_count));
  }
  return absl::OkStatus();
}

std::vector<std::vector<size_t>> ShardsByRange(const Plan& plan) {
  std::vector<std::vector<size_t>> ranges;
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    if (i == 0 || plan.shards[i].layers != plan.shards[i - 1].layers) ranges.emplace_back();
    ranges.back().push_back(i);
  }
  return ranges;
}

std::string Route::ToString() const {
  std::string text;
  for (const RouteStage& stage : stages) {
    absl::StrAppend(&text, text.empty() ? "" : ",", stage.node.value(), ":", stage.layers.begin,
                    "-", stage.layers.end - 1);
  }
  return text;
}

}  // namespace shardline
