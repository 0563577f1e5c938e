#pragma once

// Who is there: what the simulated processes know of each other, and the words they exchange
// where production has protobuf messages.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "node/rounds/run_attempt.h"
#include "node/stage/stage_bundle.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_network.h"

namespace shardline::sim {

class SimClient;
class SimCoordinator;
class SimNode;

struct SimCluster {
  explicit SimCluster(SimContext* sim);
  ~SimCluster();

  SimNode* NodeNamed(const NodeId& id) const;
  // The one that answers at the coordinator's address: the newest.
  SimCoordinator* coordinator() const { return coordinators.back().get(); }

  SimContext* const context;
  SimNetwork network;
  ReferenceModel reference;
  std::set<SessionId> poisonous;  // Sessions that kill the node that computes them.
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
  Incarnation incarnation;
  std::string capability;
};

// RunAttempt, in the terms of head.proto.
struct RunOrder {
  RunAttempt run;
  Term term;
  Incarnation incarnation;
  std::string capability;
  SimCoordinator* asker = nullptr;
};

struct ShardOrder {
  PlanEpoch plan;
  LayerRange layers;
  bool is_head = false;
  int32_t kv_pages = 0;

  friend bool operator==(const ShardOrder&, const ShardOrder&) = default;
};

// A client's request, in the terms of inference.proto.
struct GenerateWords {
  std::vector<int32_t> prompt;
  int32_t new_tokens_max = 0;
  SamplingParams sampling;
  absl::Duration budget;
  std::string key;                   // Empty: not to be remembered.
  std::optional<SessionId> session;  // The one to go on with.
  std::vector<int32_t> tokens_held;
  uint64_t digest = 0;
  bool poisonous = false;
  std::string tenant = "t";
};

// What a client hears; exactly one of `started`, a token and `ended`.
struct ClientWords {
  std::optional<AttemptKey> started;
  uint32_t index = 0;
  int32_t token = -1;
  bool ended = false;
  absl::Status status;
  uint32_t tokens = 0;  // Of a completed session.
  int teller = 0;       // Which coordinator says so.
};

struct WelcomeWords {
  Incarnation incarnation;
  Term term;
  uint64_t key = 0;  // What OPEN and FENCE are signed with.
  SessionId floor;
};

struct BeatReplyWords {
  uint64_t number = 0;
  Term term;
  SessionId floor;
  uint64_t as_of = 0;
  std::vector<AttemptKey> live;
};

// Stands for the HMAC of production: who does not know the key cannot make it.
std::string OpenCapability(uint64_t key, const OpenAttempt& open);
std::string FenceCapability(uint64_t key, const FenceOrder& order);

// Process numbers, as traces print them.
inline constexpr int kFirstCoordinator = 100;
inline constexpr int kFirstClient = 1000;

inline constexpr SimTime kHeartbeat = 250 * kMillisecond;
inline constexpr SimTime kLease = 1500 * kMillisecond;

}  // namespace shardline::sim
