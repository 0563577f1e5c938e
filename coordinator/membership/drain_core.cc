#include "coordinator/membership/drain_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

std::optional<Instant> Earlier(std::optional<Instant> a, std::optional<Instant> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

std::string_view NodeDutyName(NodeDuty duty) {
  switch (duty) {
    case NodeDuty::kServing:
      return "serving";
    case NodeDuty::kCordoned:
      return "cordoned";
    case NodeDuty::kDraining:
      return "draining";
    case NodeDuty::kDrained:
      return "drained";
  }
  return "unknown";
}

std::optional<Instant> DrainCore::Node::due() const { return Earlier(drain_by, leave_by); }

void DrainCore::OnCordon(const NodeId& node) {
  if (std::exchange(nodes_[node].cordoned, true)) return;
  Changed(node);
}

void DrainCore::OnUncordon(const NodeId& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.cordoned) return;
  Node& entry = found->second;
  entry.cordoned = false;
  entry.drain_by.reset();
  if (!entry.leave_by) nodes_.erase(found);
  Changed(node);
}

absl::Status DrainCore::OnDrain(const NodeId& node, absl::Duration deadline, Instant now) {
  if (deadline < absl::ZeroDuration() || deadline > kDeadlineMax) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("deadline: ", absl::FormatDuration(deadline), "; 0 to ",
                                    absl::FormatDuration(kDeadlineMax)));
  }
  Node& entry = nodes_[node];
  entry.cordoned = true;
  entry.drain_by = Earlier(entry.drain_by, now + deadline);
  Changed(node);
  OnTick(now);
  return absl::OkStatus();
}

void DrainCore::OnLeaving(const NodeId& node, absl::Duration deadline, Instant now) {
  const Instant by = now + std::clamp(deadline, absl::ZeroDuration(), kDeadlineMax);
  Node& entry = nodes_[node];
  const bool news = !entry.leave_by.has_value();
  entry.leave_by = Earlier(entry.leave_by, by);
  if (news) Changed(node);
  OnTick(now);
}

void DrainCore::OnNodeLost(const NodeId& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  Node& entry = found->second;
  entry.leave_by.reset();
  entry.sessions = 0;
  if (!entry.cordoned) nodes_.erase(found);
  Changed(node);
}

void DrainCore::OnSessions(const NodeId& node, int count) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.due()) return;
  Node& entry = found->second;
  const bool was_empty = entry.sessions == 0;
  entry.sessions = count;
  if (was_empty != (count == 0)) Changed(node);
}

void DrainCore::OnTick(Instant now) {
  for (auto& [node, entry] : nodes_) {
    if (entry.moved || !entry.due() || now < *entry.due()) continue;
    entry.moved = true;
    actions_.move.push_back({.node = node, .reason = "the node is drained"});
  }
}

DrainActions DrainCore::TakeActions() { return std::exchange(actions_, DrainActions()); }

Instant DrainCore::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [node, entry] : nodes_) {
    if (!entry.moved && entry.due()) wake = std::min(wake, *entry.due());
  }
  return wake;
}

NodeDuty DrainCore::DutyOf(const NodeId& node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return NodeDuty::kServing;
  const Node& entry = found->second;
  if (!entry.due()) return NodeDuty::kCordoned;
  return entry.sessions == 0 ? NodeDuty::kDrained : NodeDuty::kDraining;
}

absl::Duration DrainCore::TimeLeft(const NodeId& node, Instant now) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.due()) return absl::ZeroDuration();
  return std::max(*found->second.due() - now, absl::ZeroDuration());
}

std::vector<NodeId> DrainCore::Draining() const {
  std::vector<NodeId> nodes;
  for (const auto& [node, entry] : nodes_) {
    if (entry.due()) nodes.push_back(node);
  }
  return nodes;
}

std::vector<NodeId> DrainCore::Closed() const {
  std::vector<NodeId> nodes;
  for (const auto& [node, entry] : nodes_) nodes.push_back(node);
  return nodes;
}

void DrainCore::Changed(const NodeId& node) { actions_.changed.push_back(node); }

}  // namespace shardline
