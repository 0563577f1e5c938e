#pragma once

// One moment of the cluster, as operators see it. The coordinator fills it in on its strand; the
// conversions to the wire are pure.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/id.h"
#include "coordinator/membership/drain_core.h"
#include "coordinator/membership/node_facts.h"
#include "coordinator/routing/route_table.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

// What the file says about a model, for lists.
struct ModelFacts {
  std::string name;
  ModelId model_id;
  std::string architecture;
  std::string quantisation;
  uint64_t bytes = 0;
  uint32_t layers = 0;
  uint32_t context_tokens_max = 0;
};

// A model in service, or on its way there.
struct ClusterModel {
  ModelFacts facts;     // As far as known.
  bool placed = false;  // Then `view` stands; else `note` says what is being done.
  ModelView view = {};
  bool failed = false;  // Before it was placed.
  std::string note;
};

struct NodeDutyView {
  NodeDuty duty = NodeDuty::kServing;
  uint32_t sessions = 0;  // Through the node.
  absl::Duration left;    // Until they move, while it drains.
};

struct ClusterView {
  Term term;
  std::vector<NodeView> nodes;
  std::vector<ClusterModel> models;
  std::vector<std::string> problems;  // One line each.
  uint32_t sessions_running = 0;
  uint32_t sessions_waiting = 0;
  uint64_t sessions_started = 0;          // Since the coordinator's start, as
  uint64_t tokens_delivered = 0;          // are these.
  bool draining = false;                  // The coordinator: it takes no more requests.
  std::string refusal;                    // Why it serves nothing; empty: it may.
  std::map<NodeId, NodeDutyView> duties;  // Of nodes that are listed.
};

v1::ModelSummary ToSummary(const ClusterModel& model);
v1::ClusterStatus ToStatus(const ClusterView& view);
v1::NodeList ToNodeList(const ClusterView& view);
v1::ModelList ToModelList(const ClusterView& view);
// Of one model, or of all when `model` is empty.
v1::ShardList ToShardList(const ClusterView& view, const std::string& model);

}  // namespace shardline
