#pragma once

// A plan: which node holds which layers of one model. Immutable once it has its epoch; what
// changes is who lives (route_table.h). Several nodes may hold the same range: replicas. A route
// takes one node of each range, in the incarnation of one moment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "base/route.h"
#include "coordinator/placement/round_cost.h"

namespace shardline {

struct PlannedShard {
  NodeId node;
  LayerRange layers;
  bool is_head = false;
  uint64_t bytes = 0;  // Of its weights.
};

struct Plan {
  PlanEpoch epoch;
  std::string model;  // The name clients ask for.
  ModelId model_id;
  int32_t layer_count = 0;
  // In ring order, the heads first. Those of one range stand side by side.
  std::vector<PlannedShard> shards;
  int32_t replicas = 1;  // Nodes wanted a range; some may have found none.
};

// kInvalidRequest unless the ranges tile [0, layer_count) in order, on distinct nodes, and those
// of the first range, and no others, are heads.
absl::Status ValidatePlan(const Plan& plan);

// The indices of `plan.shards`, range by range. REQUIRES: the plan is valid.
std::vector<std::vector<size_t>> ShardsByRange(const Plan& plan);

// What an attempt runs on. Stage 0 is the head and the ring closes on it.
struct Route {
  PlanEpoch plan;
  std::string model;
  ModelId model_id;
  NumericsId numerics_id;
  std::vector<RouteStage> stages;
  uint32_t kv_pages_min = 0;  // Of the stage whose pool is smallest; 0: unknown.
  RoundChoice rounds;  // By the cost model; one in flight unless whoever hands it out says so.

  // For people and the ledger: "node-a:0-9,node-b:10-19".
  std::string ToString() const;
};

// What a new route should do without: what is suspected of having ended an earlier attempt. A
// suspect is one life of a node; its next life is not under suspicion.
struct RouteSuspects {
  struct Link {
    NodeId from;
    NodeId to;
    friend bool operator==(const Link&, const Link&) = default;
  };
  std::vector<StagePeer> nodes;
  std::vector<Link> links;

  bool empty() const { return nodes.empty() && links.empty(); }
};

}  // namespace shardline
