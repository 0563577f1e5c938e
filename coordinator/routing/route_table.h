#pragma once

// Which models can be served right now, and along which route.
//
// A model has one plan. Its shards load, and when the last one has, a real token must go round
// the ring (probing) before the model is ready. When a node is lost the model is degraded and
// requests are refused by name; when the node comes back with a new incarnation it is told to
// load its shard again, and after another probe the model is ready again.
//
//   loading -> probing -> ready -> degraded -> (loading its lost shards) -> probing -> ready
//
// A shard that reports other numerics than the head's is failed, naming both. A failed shard or a
// probe that keeps failing makes the model failed; a new plan or a returning node is the way out.
//
// Sans-IO: events and `now` in, TakeActions() out, on the coordinator's strand.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/routing/plan.h"

namespace shardline {

enum class ModelState { kLoading, kProbing, kReady, kDegraded, kFailed };
enum class ShardState { kWaiting, kLoading, kLoaded, kFailed, kLost };
std::string_view ModelStateName(ModelState state);
std::string_view ShardStateName(ShardState state);

struct RouteTableOptions {
  absl::Duration probe_retry = absl::Seconds(1);
  int probes_max = 5;                             // In a row; then the model is failed.
  absl::Duration retry_after = absl::Seconds(2);  // Told to clients of a model not ready.
};

// What a node says about the shard it holds or loads.
struct ShardReport {
  PlanEpoch plan;
  ShardState state = ShardState::kLoading;  // kLoading, kLoaded or kFailed.
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  NumericsId numerics_id;  // When loaded.
  uint32_t kv_pages = 0;   // When loaded.
  absl::Status failure;    // When failed.
};

struct RouteActions {
  struct Unload {
    NodeId node;
    Incarnation incarnation;
    PlanEpoch plan;
  };
  struct Load {
    NodeId node;
    Incarnation incarnation;
    PlanEpoch plan;
    size_t shard_index;  // In the plan.
  };
  struct Probe {
    PlanEpoch plan;
    uint64_t number;  // Given back with OnProbeDone.
    Route route;      // To run one token on.
  };

  std::vector<Unload> unload;
  std::vector<Load> load;
  std::vector<Probe> probe;
  std::vector<std::string> changed;  // Models whose state or progress changed.

  bool empty() const { return unload.empty() && load.empty() && probe.empty() && changed.empty(); }
};

struct ShardView {
  PlannedShard shard;
  ShardState state = ShardState::kWaiting;
  Incarnation incarnation;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string reason;  // When failed or lost.
};

struct ModelView {
  Plan plan;
  ModelState state = ModelState::kLoading;
  std::string reason;  // Why it is not ready, naming nodes and layers. Empty when ready.
  NumericsId numerics_id;
  std::vector<ShardView> shards;
};

class RouteTable {
 public:
  explicit RouteTable(const RouteTableOptions& options) : options_(options) {}

  // Takes a plan into service. kInvalidRequest for a plan that is not valid, a name already in
  // service, an epoch already used, or a node that holds another model's shard.
  absl::Status OnPlan(const Plan& plan, Instant now);
  // NotFound for an unknown name. The nodes are told to unload.
  absl::Status OnUnload(const std::string& model, Instant now);

  // A node was welcomed. `holds` is the shard it brought along from an older stream.
  void OnNodeReady(const NodeId& node, Incarnation incarnation, const std::string& address,
                   const std::optional<ShardReport>& holds, Instant now);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason, Instant now);
  void OnShardReport(const NodeId& node, Incarnation incarnation, const ShardReport& report,
                     Instant now);
  void OnProbeDone(PlanEpoch plan, uint64_t number, const absl::Status& status, Instant now);
  void OnTick(Instant now);

  RouteActions TakeActions();
  Instant NextWake() const;

  // The route of a ready model; an empty name means the only one in service. NotFound: no such
  // model. A model that is not ready fails with its lost node's kind (or kOverloaded while it
  // loads), naming the missing layers and their nodes, with retry_after.
  absl::StatusOr<Route> RouteFor(const std::string& model, Instant now) const;

  std::vector<ModelView> List(Instant now) const;
  // One line each, in numbers: "qwen3: layers 10-19 on node-b: heartbeat lost 1.2 s ago".
  std::vector<std::string> Problems(Instant now) const;

 private:
  struct LiveNode {
    Incarnation incarnation;
    std::string address;
  };
  struct Shard {
    PlannedShard planned;
    ShardState state = ShardState::kWaiting;
    Incarnation incarnation;
    uint64_t bytes_done = 0;
    uint64_t bytes_total = 0;
    NumericsId numerics_id;
    FailureKind kind = FailureKind::kNone;  // When failed or lost.
    std::string reason;
    Instant since;
  };
  struct Model {
    Plan plan;
    std::vector<Shard> shards;
    ModelState state = ModelState::kLoading;
    bool was_ready = false;  // Then a missing shard means degraded, not loading.
    uint64_t probe_number = 0;
    int probes_failed = 0;
    Instant probe_at = Instant::InfiniteFuture();  // The next try.
    absl::Status probe_failure;
    Instant since;
  };

  Model* ModelOfNode(const NodeId& node, Shard** shard);
  void TakeReport(Model& model, Shard& shard, const ShardReport& report, Instant now);
  void OrderLoad(Model& model, Shard& shard, Instant now);
  void Settle(Model& model, Instant now);
  void StartProbe(Model& model, Instant now);
  Route MakeRoute(const Model& model) const;
  std::vector<std::string> Missing(const Model& model, Instant now) const;

  const RouteTableOptions options_;

  std::map<std::string, Model> models_;
  std::map<NodeId, LiveNode> live_;
  PlanEpoch highest_plan_;
  uint64_t probes_ = 0;
  RouteActions actions_;
};

}  // namespace shardline
