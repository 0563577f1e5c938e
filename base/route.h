#pragma once

// One stage of a route, as coordinator and nodes both speak of it.

#include <compare>
#include <string>

#include "base/id.h"
#include "base/layer_range.h"

namespace shardline {

// One life of one node. Inside a node, the empty peer is its own head.
struct StagePeer {
  NodeId node;
  Incarnation incarnation;

  bool is_own_head() const { return node.empty(); }
  friend bool operator==(const StagePeer&, const StagePeer&) = default;
  friend auto operator<=>(const StagePeer&, const StagePeer&) = default;
};

// Routes list their stages in order. The head is stage 0 and the ring closes on it.
struct RouteStage {
  NodeId node;
  Incarnation incarnation;
  std::string address;  // A hint: identity is node and incarnation.
  LayerRange layers;

  StagePeer peer() const { return {node, incarnation}; }
  friend bool operator==(const RouteStage&, const RouteStage&) = default;
};

// Whether two of these, peers or stages, are the same life of the same node.
template <typename A, typename B>
bool SameLife(const A& a, const B& b) {
  return a.incarnation == b.incarnation && a.node == b.node;
}

}  // namespace shardline
