#pragma once

// Nodes that do as they are told, around a RouteTable: loads are obeyed, probes succeed.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/routing/route_table.h"

namespace shardline::testing {

inline Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

// "a,b|c" on layers of ten each: node-a and node-b hold 0-9, node-c holds 10-19.
inline Plan PlanOf(uint64_t epoch, const std::vector<std::vector<std::string>>& ranges,
                   int32_t replicas = 1, const std::string& model = "qwen3") {
  Plan plan{.epoch = PlanEpoch(epoch),
            .model = model,
            .model_id = ModelId("sha256:1"),
            .layer_count = static_cast<int32_t>(ranges.size()) * 10,
            .shards = {},
            .replicas = replicas};
  int32_t begin = 0;
  for (const std::vector<std::string>& nodes : ranges) {
    for (const std::string& node : nodes) {
      plan.shards.push_back({.node = NodeId(node),
                             .layers = {begin, begin + 10},
                             .is_head = begin == 0,
                             .bytes = 100});
    }
    begin += 10;
  }
  return plan;
}

inline ShardReport LoadedReport(PlanEpoch plan, const std::string& numerics = "n1") {
  return ShardReport{.plan = plan,
                     .state = ShardState::kLoaded,
                     .bytes_done = 100,
                     .bytes_total = 100,
                     .numerics_id = NumericsId(numerics)};
}

class RoutingWorld {
 public:
  explicit RoutingWorld(const RouteTableOptions& options = {}) : table(options) {}

  void Join(const std::string& node) {
    lives_[NodeId(node)] = Incarnation(++incarnations_);
    table.OnNodeReady(NodeId(node), lives_[NodeId(node)], node + ":1", std::nullopt, now);
  }
  void Lose(const std::string& node) {
    const Incarnation life = lives_.at(NodeId(node));
    lives_.erase(NodeId(node));
    table.OnNodeLost(NodeId(node), life, FailureKind::kHeartbeatLost, "heartbeat lost", now);
  }
  StagePeer Life(const std::string& node) const { return {NodeId(node), lives_.at(NodeId(node))}; }

  // Obeys until nothing is left to do, and keeps what was asked of the owner.
  void Settle() {
    while (true) {
      RouteActions actions = table.TakeActions();
      if (actions.empty()) return;
      for (const RouteActions::Unload& unload : actions.unload) unloaded.push_back(unload);
      for (const RouteActions::Load& load : actions.load) {
        loaded.push_back(load);
        if (mute.contains(load.node)) continue;
        table.OnShardReport(load.node, load.incarnation, LoadedReport(load.plan), now);
      }
      for (const RouteActions::Probe& probe : actions.probe) {
        probed.push_back(probe);
        const absl::Status status =
            probe_result == nullptr ? absl::OkStatus() : probe_result(probe.route);
        table.OnProbeDone(probe.plan, probe.number, status, now);
      }
      for (RouteActions::Replan& replan : actions.replan) replans.push_back(std::move(replan));
    }
  }
  void Advance(absl::Duration by) {
    now = now + by;
    table.OnTick(now);
    Settle();
  }
  ModelState State() const { return table.List(now).front().state; }
  std::string Route(const RouteSuspects& avoid = {}) {
    const absl::StatusOr<shardline::Route> route = table.RouteFor("qwen3", avoid, now);
    return route.ok() ? route->ToString() : std::string(route.status().message());
  }

  RouteTable table;
  Instant now = At(0);
  std::set<NodeId> mute;  // They do not say that they have loaded.
  std::function<absl::Status(const shardline::Route&)> probe_result;
  std::vector<RouteActions::Unload> unloaded;
  std::vector<RouteActions::Load> loaded;
  std::vector<RouteActions::Probe> probed;
  std::vector<RouteActions::Replan> replans;

 private:
  std::map<NodeId, Incarnation> lives_;
  uint64_t incarnations_ = 0;
};

}  // namespace shardline::testing
