#pragma once

// Which models can be served right now, and along which route.
//
// A model has one plan in force. Its shards load, and a real token must go round the ring through
// a shard before the shard serves: it is proven then. The model is ready iff every range has a
// live, loaded, proven shard; losing a replica does not degrade it.
//
//   loading -> probing -> ready -> degraded -> (its shards load) -> probing -> ready
//
// One probe of a model is under way at a time: it goes through every range's unproven shard, else
// a proven one. What it has gone through is proven; when it fails, the unproven ones on its way
// are blamed, and after `probes_max` in a row a shard is useless: the model fails if it has no
// other, though one more token is tried now and then.
//
// A range without a shard that lives, loaded or loading, for `replan_after` is placed again: the
// table asks (Replan), its owner answers with OnReplan or OnReplanRefused. A node that comes back
// first ends the question; once the new plan is in force the old one is forgotten and a returning
// node is a spare. A shard that fails to load under a plan made so counts as lost, and its node's
// life is not asked again.
//
// A suspected link is avoided where another ring exists. It counts as sound again once a probe
// that began after the suspicion has gone over it (one is tried at once, then every
// `probe_retry`), when one of its ends starts a new life, or after `link_suspicion`. A ready model
// without a ring around its suspects for `link_replan_after` is placed again around them, at most
// once in `link_replan_interval`.
//
// A shard that reports other numerics than those proven (or the first head's) is failed, naming
// both.
//
// Sans-IO: events and `now` in, TakeActions() out, on the coordinator's strand.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "base/shard_cost.h"
#include "coordinator/placement/round_cost.h"
#include "coordinator/routing/plan.h"

namespace shardline {

enum class ModelState { kLoading, kProbing, kReady, kDegraded, kFailed };
enum class ShardState { kWaiting, kLoading, kLoaded, kFailed, kLost };
std::string_view ModelStateName(ModelState state);
std::string_view ShardStateName(ShardState state);

struct RouteTableOptions {
  absl::Duration probe_retry = absl::Seconds(1);
  int probes_max = 5;                                // In a row; then the shard is useless,
  absl::Duration probe_useless = absl::Seconds(10);  // and tried again after this long.
  absl::Duration retry_after = absl::Seconds(2);     // Told to clients of a model not ready.

  absl::Duration replan_after = absl::Seconds(1);    // A range without a live shard.
  absl::Duration join_patience = absl::Seconds(10);  // The same, if its nodes have yet to join.
  absl::Duration replan_retry = absl::Seconds(10);   // After a refusal, if no node joins sooner.

  absl::Duration link_suspicion = absl::Seconds(10);
  absl::Duration link_replan_after = absl::Seconds(2);
  absl::Duration link_replan_interval = absl::Seconds(30);
};

// What a node says about the shard it holds or loads.
struct ShardReport {
  PlanEpoch plan;
  ShardState state = ShardState::kLoading;  // kLoading, kLoaded or kFailed.
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  NumericsId numerics_id;  // When loaded.
  uint32_t kv_pages = 0;   // When loaded.
  ShardCost cost;          // When loaded.
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
  struct Replan {
    std::string model;
    PlanEpoch plan;                // In force until OnReplan.
    std::vector<LayerRange> lost;  // Without a live shard; none: the reason is a link.
    RouteSuspects avoid;           // Not to be used by the new plan.
    std::string reason;
  };

  std::vector<Unload> unload;
  std::vector<Load> load;
  std::vector<Probe> probe;
  std::vector<Replan> replan;  // Answered once each, by OnReplan or OnReplanRefused.
  // Models whose state, progress or choice of routes changed: whoever waits for a route asks again.
  std::vector<std::string> changed;

  bool empty() const {
    return unload.empty() && load.empty() && probe.empty() && replan.empty() && changed.empty();
  }
};

struct ShardView {
  PlannedShard shard;
  ShardState state = ShardState::kWaiting;
  Incarnation incarnation;
  bool proven = false;
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

  // The answer to Replan: `plan` takes the place of the one in force. kStaleEpoch, and nothing
  // happens, when that is not wanted any more; kInvalidRequest as OnPlan.
  absl::Status OnReplan(const Plan& plan, Instant now);
  // Asked again `replan_after` a node has joined or a model was unloaded, or after `replan_retry`.
  void OnReplanRefused(const std::string& model, PlanEpoch in_force, const std::string& reason,
                       Instant now);

  // A node was welcomed. `holds` is the shard it brought along from an older stream.
  void OnNodeReady(const NodeId& node, Incarnation incarnation, const std::string& address,
                   const std::optional<ShardReport>& holds, Instant now);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason, Instant now);
  void OnShardReport(const NodeId& node, Incarnation incarnation, const ShardReport& report,
                     Instant now);
  void OnProbeDone(PlanEpoch plan, uint64_t number, const absl::Status& status, Instant now);
  // A link between two live nodes failed, or its receiver cannot be heard. Renews the suspicion.
  void OnLinkSuspected(const NodeId& from, const NodeId& to, Instant now);
  void OnTick(Instant now);

  bool has_actions() const { return !actions_.empty(); }
  RouteActions TakeActions();
  Instant NextWake() const;

  // A route of a ready model; an empty name means the only one in service. Of each range it takes
  // the shard that was handed out least recently, around suspected links where it can; rather the
  // one that the last route of the same affinity took (0: none), as long as the others of its range
  // have not fallen too far behind. Never a node life in `avoid`; a link in `avoid` only if it
  // counts as sound again (a link the table has not heard of becomes suspected by this call).
  // NotFound: no such model. A model that is not ready fails with its lost node's kind (or
  // kOverloaded while it loads), naming the missing layers and their nodes; kOverloaded, naming
  // what is missing, when the suspects leave no ring. Both with retry_after.
  absl::StatusOr<Route> RouteFor(const std::string& model, const RouteSuspects& avoid, Instant now,
                                 uint64_t affinity = 0);
  // The same, but where the suspects leave no choice the route has as few of them as can be, nodes
  // before links: the caller knows for how long a suspicion is worth waiting.
  absl::StatusOr<Route> RouteAnyway(const std::string& model, const RouteSuspects& avoid,
                                    Instant now, uint64_t affinity = 0);
  // Why `model` is not ready, as RouteFor says it; OK if it is.
  absl::Status WhyNotReady(const std::string& model, Instant now) const;

  // What the nodes have said about the route's stages; of their machines nothing is known here.
  // Empty when one of them is not what it was.
  std::vector<StageCost> CostsOf(const Route& route) const;

  bool any_ready() const;
  std::vector<ModelView> List(Instant now) const;
  // One line each, in numbers: "qwen3: layers 10-19 on node-b: heartbeat lost 1.2 s ago",
  // "qwen3: layers 0-9 have 1 of 2 replicas: node-c: heartbeat lost 1.2 s ago".
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
    NumericsId numerics_id;  // When loaded, or failed for computing otherwise.
    uint32_t kv_pages = 0;   // When loaded.
    ShardCost cost;          // When loaded.
    bool proven = false;
    int probes_failed = 0;                  // In a row, while unproven.
    uint64_t handed_out = 0;                // The number of the last route through it.
    uint32_t lead = 0;                      // Routes more than the shard of its range with fewest.
    FailureKind kind = FailureKind::kNone;  // When failed or lost.
    std::string reason;
    Instant since;
  };
  struct Model {
    Plan plan;
    std::vector<Shard> shards;                // As in the plan.
    std::vector<std::vector<size_t>> ranges;  // Indices of shards.
    ModelState state = ModelState::kLoading;
    bool was_ready = false;     // Then a missing range means degraded, not loading.
    uint64_t probe_number = 0;  // Of the probe under way; 0: none.
    std::vector<std::pair<size_t, Incarnation>> probe_shards;
    Instant probe_started;
    Instant probe_at;            // No probe of unproven shards before.
    absl::Status probe_failure;  // The last one's.
    bool replanning = false;     // Asked, not answered.
    bool replanning_for_link = false;
    Instant replan_at;  // Not asked before.
    std::string replan_refusal;
    Instant link_replan_at;     // Not asked for a link's sake before.
    std::set<StagePeer> unfit;  // Lives that failed to load a shard.
    Instant since;
    // Affinity and ring of late routes, each in the place that its affinity gives it.
    std::vector<std::pair<uint64_t, std::vector<size_t>>> late_rings;
  };
  using Link = std::pair<NodeId, NodeId>;
  // Kept for a while when it is sound again, so that an older suspicion does not count anew.
  struct LinkState {
    bool sound = false;
    Instant since;  // Of the last suspicion,
    Instant first;  // and of the first since the link was sound.
    Instant probe_at;
  };

  Model* ModelOfNode(const NodeId& node, Shard** shard);
  void Start(Model& model, const Plan& plan, Instant now);
  absl::Status CheckNew(const Plan& plan);
  void StartLife(const NodeId& node);
  void RetryReplans(Instant now);
  void TakeReport(Model& model, Shard& shard, const ShardReport& report, Instant now);
  void OrderLoad(Model& model, Shard& shard, Instant now);
  void Blame(Model& model, const absl::Status& status, Instant now);
  void Suspect(const Link& link, Instant now);
  Route MakeRoute(const Model& model, const std::vector<size_t>& ring) const;

  // Where a model stands, from where its shards and links stand (route_table_state.cc).
  void Settle(Model& model, Instant now);
  void SettleNumerics(Model& model);
  void ForgetLostProbe(Model& model);
  void StartProbe(Model& model, Instant now);
  void AskReplan(Model& model, Instant now);
  ModelState StateOf(const Model& model) const;
  bool IsUseless(const Shard& shard) const { return shard.probes_failed >= options_.probes_max; }
  static bool Serves(const Shard& shard);
  static bool IsLost(const Model& model, const std::vector<size_t>& range);
  Instant RangeDue(const Model& model, const std::vector<size_t>& range) const;
  Instant ReplanDue(const Model& model) const;
  Instant LinkReplanDue(const Model& model) const;
  Instant ProbeDue(const Model& model) const;

  // Rings and links (route_table_rings.cc).
  absl::StatusOr<Route> HandOut(const std::string& model, const RouteSuspects& avoid, bool anyway,
                                Instant now, uint64_t affinity);
  std::optional<std::vector<size_t>> ServingRing(const Model& model, const RouteSuspects& avoid,
                                                 bool anyway, uint64_t affinity) const;
  // The shard of the range that has served the affinity last, if it may go on to.
  std::optional<size_t> LateShard(const Model& model, size_t range, uint64_t affinity) const;
  static void Remember(Model& model, const std::vector<size_t>& ring, uint64_t affinity);
  std::optional<std::vector<size_t>> ProbeRing(const Model& model, Instant now) const;
  bool HasSoundRing(const Model& model) const;
  bool IsSuspected(const Link& link) const;
  // The shards at both ends, if the link may be part of the model's ring and both have loaded.
  std::optional<std::pair<size_t, size_t>> LoadedEnds(const Model& model, const Link& link) const;
  std::vector<Link> LinksOf(const Model& model, const std::vector<size_t>& ring) const;

  // For people (route_table_view.cc).
  absl::StatusOr<std::string> NameOf(const std::string& name) const;
  absl::Status NoRing(const Model& model, const RouteSuspects& avoid) const;
  std::string StandingOf(const Shard& shard, Instant now) const;
  std::vector<std::string> Missing(const Model& model, Instant now) const;
  std::vector<std::string> MissingReplicas(const Model& model, Instant now) const;

  const RouteTableOptions options_;

  std::map<std::string, Model> models_;
  std::map<NodeId, LiveNode> live_;
  std::map<Link, LinkState> links_;
  PlanEpoch highest_plan_;
  uint64_t probes_ = 0;
  uint64_t routes_ = 0;
  RouteActions actions_;
};

}  // namespace shardline
