#pragma once

// A plan: which node holds which layers of one model. Immutable once it has its epoch; what
// changes is who lives (route_table.h). A route is a plan with the incarnations of one moment.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "base/route.h"

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
  std::vector<PlannedShard> shards;  // In ring order; the head first.
};

// kInvalidRequest unless the shards tile [0, layer_count) in order, on distinct nodes, and the
// first one alone is the head.
absl::Status ValidatePlan(const Plan& plan);

// What an attempt runs on. Stage 0 is the head and the ring closes on it.
struct Route {
  PlanEpoch plan;
  std::string model;
  ModelId model_id;
  NumericsId numerics_id;
  std::vector<RouteStage> stages;

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
