#pragma once

// Who is there: what the simulated processes know of each other, and the words they exchange
// where production has protobuf messages.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "node/rounds/run_attempt.h"
#include "node/stage/stage_bundle.h"
#include "tests/sim/sim_network.h"

namespace shardline::sim {

class SimClient;
class SimCoordinator;
class SimNode;

struct SimCluster {
  explicit SimCluster(SimContext* sim) : context(sim), network(sim) {}

  SimNode* NodeNamed(const NodeId& id) const;
  // The one that answers at the coordinator's address: the newest.
  SimCoordinator* coordinator() const { return coordinators.back().get(); }

  SimContext* const context;
  SimNetwork network;
  std::vector<std::unique_ptr<SimNode>> nodes;
  std::vector<std::unique_ptr<SimCoordinator>> coordinators;
  std::vector<std::unique_ptr<SimClient>> clients;
};

// FENCE, in the terms of link.proto.
struct FenceOrder {
  SessionId session;
  Epoch epoch;
  Term term;
  FailureKind reason = FailureKind::kNone;
};

// RunAttempt, in the terms of head.proto.
struct RunOrder {
  RunAttempt run;
  Term term;
  Incarnation incarnation;
};

struct ShardOrder {
  PlanEpoch plan;
  LayerRange layers;
  bool is_head = false;
  int32_t kv_pages = 0;

  friend bool operator==(const ShardOrder&, const ShardOrder&) = default;
};

struct WelcomeWords {
  Incarnation incarnation;
  Term term;
};

// Process numbers, as traces print them.
inline constexpr int kFirstCoordinator = 100;
inline constexpr int kFirstClient = 1000;

inline constexpr SimTime kHeartbeat = 250 * kMillisecond;
inline constexpr SimTime kLease = 1500 * kMillisecond;

}  // namespace shardline::sim
