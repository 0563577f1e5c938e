#pragma once

// Which nodes are to get no new sessions, and until when what runs on them may stay.
//
// A cordon is an operator's word about a node's name: it outlasts the node's lives, and this
// coordinator only. A drain is a cordon with a deadline: when it passes, sessions that still run
// through the node move to other routes (Move). A node may announce by its beats that it is about
// to leave; that is a drain of this one life, and ends with it.
//
//   serving <-> cordoned -> draining -> drained (nothing runs on it)
//
// Sans-IO: events and `now` in, TakeActions() out, on the coordinator's strand. Knows nothing of
// sessions but how many there are.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/instant.h"

namespace shardline {

enum class NodeDuty { kServing, kCordoned, kDraining, kDrained };
std::string_view NodeDutyName(NodeDuty duty);

struct DrainActions {
  struct Move {
    NodeId node;
    std::string reason;
  };
  std::vector<Move> move;       // Whatever runs through the node restarts without it.
  std::vector<NodeId> changed;  // Its duty is another: who waits for a route asks again.

  bool empty() const { return move.empty() && changed.empty(); }
};

class DrainCore {
 public:
  static constexpr absl::Duration kDeadlineMax = absl::Hours(24);

  // Idempotent. A drain of a node that drains already may bring its deadline forward, not put it
  // off. kInvalidRequest for a deadline below zero or above kDeadlineMax.
  void OnCordon(const NodeId& node);
  void OnUncordon(const NodeId& node);  // Not the end of what the node itself announced.
  absl::Status OnDrain(const NodeId& node, absl::Duration deadline, Instant now);
  // What a beat of the node's live incarnation said; zero or less: it moves at once.
  void OnLeaving(const NodeId& node, absl::Duration deadline, Instant now);
  // Its life is over, and with it what it had announced.
  void OnNodeLost(const NodeId& node);
  // How many sessions run through a node; asked after every event, for nodes that drain.
  void OnSessions(const NodeId& node, int count);
  void OnTick(Instant now);

  DrainActions TakeActions();
  Instant NextWake() const;

  NodeDuty DutyOf(const NodeId& node) const;
  // True unless kServing: nothing new goes there.
  bool IsClosed(const NodeId& node) const { return DutyOf(node) != NodeDuty::kServing; }
  // Until sessions move; zero without a deadline.
  absl::Duration TimeLeft(const NodeId& node, Instant now) const;
  // Those with a deadline, drained or not.
  std::vector<NodeId> Draining() const;
  std::vector<NodeId> Closed() const;

 private:
  struct Node {
    bool cordoned = false;            // By an operator,
    std::optional<Instant> drain_by;  // who also wants it empty.
    std::optional<Instant> leave_by;  // By its own word.
    std::optional<int> sessions;      // Once known, while it drains.
    bool moved = false;

    std::optional<Instant> due() const;
  };

  void Changed(const NodeId& node);

  std::map<NodeId, Node> nodes_;  // Those that are not plainly serving.
  DrainActions actions_;
};

}  // namespace shardline
