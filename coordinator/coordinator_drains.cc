// Nodes that are to get no new sessions: routes around them, and who asks for it.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "coordinator/coordinator.h"

namespace shardline {
namespace {

absl::Status NoSuchNode(const NodeId& node) {
  return absl::NotFoundError(absl::StrCat("no node ", node.value(), " has joined"));
}

bool Uses(const Route& route, const std::vector<NodeId>& nodes) {
  return std::any_of(route.stages.begin(), route.stages.end(), [&](const RouteStage& stage) {
    return std::find(nodes.begin(), nodes.end(), stage.node) != nodes.end();
  });
}

}  // namespace

absl::StatusOr<Route> Coordinator::FindRoute(const std::string& model, const RouteSuspects& avoid,
                                             uint64_t affinity) {
  const std::vector<NodeId> closed = drains_.Closed();
  if (closed.empty()) return models_.RouteFor(model, avoid, affinity);
  RouteSuspects lives;
  for (const NodeId& node : closed) {
    const std::optional<NodeView> view = membership_.Find(node, clock_->Now());
    if (view.has_value()) lives.nodes.push_back({node, view->incarnation});
  }
  RouteSuspects both = avoid;
  both.nodes.insert(both.nodes.end(), lives.nodes.begin(), lives.nodes.end());
  absl::StatusOr<Route> route = models_.RouteFor(model, both, affinity);
  if (!route.ok() || !Uses(*route, closed)) return route;
  // A suspect is better than a node that is to be left alone.
  route = models_.RouteFor(model, lives, affinity);
  if (!route.ok() || !Uses(*route, closed)) return route;
  std::vector<std::string> names;
  for (const NodeId& node : closed) {
    if (Uses(*route, {node})) {
      names.push_back(
          absl::StrCat(node.value(), " is ", std::string(NodeDutyName(drains_.DutyOf(node)))));
    }
  }
  return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(2)},
                     absl::StrCat(route->model, ": ", absl::StrJoin(names, ", "),
                                  ", and no other node holds its layers"));
}

bool Coordinator::CarryOutDrains() {
  for (const NodeId& node : drains_.Draining()) {
    drains_.OnSessions(node, sessions_.CountThrough(node));
  }
  const DrainActions actions = drains_.TakeActions();
  if (actions.empty()) return false;
  for (const NodeId& node : actions.changed) {
    const NodeDuty duty = drains_.DutyOf(node);
    LogInfo("duty of a node", {{"node", node}, {"duty", NodeDutyName(duty)}});
    const std::optional<NodeView> view = membership_.Find(node, clock_->Now());
    if (view.has_value() && view->live) {  // Else its loss says more.
      events_.Add({.kind = duty == NodeDuty::kServing
                               ? "node_uncordoned"
                               : absl::StrCat("node_", std::string(NodeDutyName(duty))),
                   .text = absl::StrCat(node.value(), " is ", std::string(NodeDutyName(duty))),
                   .node = node.value()});
    }
    if (duty != NodeDuty::kDraining) AnswerDrainWaiters(node);
  }
  for (const DrainActions::Move& action : actions.move) {
    LogInfo("sessions move away",
            {{"node", action.node}, {"sessions", sessions_.CountThrough(action.node)}});
    events_.Add(
        {.kind = "sessions_moved",
         .text = absl::StrCat(sessions_.CountThrough(action.node), " sessions move away from ",
                              action.node.value(), ": ", action.reason),
         .node = action.node.value()});
    sessions_.OnNodeDrained(action.node, action.reason);
  }
  sessions_.OnRoutesChanged();
  return true;
}

void Coordinator::AnswerDrainWaiters(const NodeId& node) {
  const auto found = drain_waiters_.find(node);
  if (found == drain_waiters_.end()) return;
  std::vector<NodeReply> waiting = std::move(found->second);
  drain_waiters_.erase(found);
  const absl::StatusOr<v1::NodeSummary> summary = SummaryOf(node);
  for (NodeReply& done : waiting) done(summary);
}

void Coordinator::DismissDrainWaiters() {
  for (auto& [node, waiting] : std::exchange(drain_waiters_, {})) {
    for (NodeReply& done : waiting) done(Busy());
  }
}

absl::Status Coordinator::MayDrain(const NodeId& node) const {
  for (const ClusterModel& model : models_.List()) {
    for (const ShardView& held : model.view.shards) {
      if (held.shard.node != node) continue;
      const auto& shards = model.view.shards;
      const bool other = std::any_of(shards.begin(), shards.end(), [&](const ShardView& shard) {
        return shard.shard.node != node && shard.shard.layers == held.shard.layers &&
               shard.proven && !drains_.IsClosed(shard.shard.node);
      });
      if (!other) {
        return absl::FailedPreconditionError(absl::StrCat("draining ", node.value(), " leaves ",
                                                          model.facts.name, " without layers ",
                                                          held.shard.layers.ToString()));
      }
    }
  }
  return absl::OkStatus();
}

std::map<NodeId, NodeDutyView> Coordinator::Duties() const {
  std::map<NodeId, NodeDutyView> duties;
  for (const NodeView& node : membership_.List(clock_->Now())) {
    duties[node.node] = {.duty = drains_.DutyOf(node.node),
                         .sessions = static_cast<uint32_t>(sessions_.CountThrough(node.node)),
                         .left = drains_.TimeLeft(node.node, clock_->Now())};
  }
  return duties;
}

absl::StatusOr<v1::NodeSummary> Coordinator::SummaryOf(const NodeId& node) {
  const v1::NodeList nodes = ToNodeList(View());
  for (const v1::NodeSummary& summary : nodes.nodes()) {
    if (summary.node_id() == node.value()) return summary;
  }
  return NoSuchNode(node);
}

void Coordinator::OnCordonNode(const NodeId& node, bool cordon, NodeReply done) {
  auto shared = std::make_shared<NodeReply>(std::move(done));
  const bool posted = loop_.TryPost([this, node, cordon, shared] {
    if (!membership_.Find(node, clock_->Now())) return (*shared)(NoSuchNode(node));
    cordon ? drains_.OnCordon(node) : drains_.OnUncordon(node);
    (*shared)(SummaryOf(node));
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnDrainNode(const v1::DrainNodeRequest& request, NodeReply done) {
  auto shared = std::make_shared<NodeReply>(std::move(done));
  const bool posted = loop_.TryPost([this, request, shared] {
    const NodeId node(request.node_id());
    if (!membership_.Find(node, clock_->Now())) return (*shared)(NoSuchNode(node));
    const bool drains = drains_.TimeLeft(node, clock_->Now()) > absl::ZeroDuration();
    if (!request.force() && !drains) {
      const absl::Status may = MayDrain(node);
      if (!may.ok()) return (*shared)(may);
    }
    const absl::Status drained =
        drains_.OnDrain(node, absl::Milliseconds(request.deadline_ms()), clock_->Now());
    if (!drained.ok()) return (*shared)(drained);
    drains_.OnSessions(node, sessions_.CountThrough(node));
    if (request.wait() && !shutting_down_ && drains_.DutyOf(node) == NodeDuty::kDraining) {
      drain_waiters_[node].push_back(std::move(*shared));
    } else {
      (*shared)(SummaryOf(node));
    }
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnRemoveNode(const NodeId& node, NodeReply done) {
  auto shared = std::make_shared<NodeReply>(std::move(done));
  const bool posted = loop_.TryPost([this, node, shared] {
    const absl::StatusOr<v1::NodeSummary> listed = SummaryOf(node);
    if (!listed.ok()) return (*shared)(listed);
    const absl::Status removed = membership_.Remove(node);
    if (!removed.ok()) return (*shared)(removed);
    LogInfo("node removed", {{"node", node}});
    events_.Add({.kind = "node_removed",
                 .text = absl::StrCat(node.value(),
                                      " was taken off the list; it was lost: ", listed->reason()),
                 .node = node.value()});
    (*shared)(listed);
  });
  if (!posted) (*shared)(Busy());
}

}  // namespace shardline
