#pragma once

// Models from the operator's wish to service: read the file, place it, store the plan, have the
// nodes load it, tell who watches. RouteTable says how far each is; this carries it out.
//
// Lives on the coordinator's loop, except Find and InService, which any thread may call.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/admin/cluster_view.h"
#include "coordinator/event_loop.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/model_file.h"
#include "coordinator/model_plan.h"
#include "coordinator/routing/route_table.h"
#include "coordinator/store_thread.h"
#include "coordinator/task_thread.h"
#include "shardline/v1/join.pb.h"

namespace shardline {

class ModelLoads {
 public:
  // All outlive this, which outlives their last call into the loop.
  struct World {
    const Clock* clock;
    EventLoop* loop;
    StoreThread* store;
    AdminService* admin;
    Term term;
    int32_t chunk_tokens_max = 0;  // Of every model that is loaded from here on; as ModelWish's.
    // Sends to a node by its live stream; nothing happens when it has none.
    std::function<void(const NodeId&, v1::CoordinatorMessage)> send;
    // Runs one token on the route; the answer comes on the loop.
    std::function<void(const Route&, std::shared_ptr<const ModelFile>,
                       absl::AnyInvocable<void(absl::Status)>)>
        probe;
    // The state of the model or its choice of routes changed: who waits for one asks again. May
    // be empty.
    std::function<void(const std::string&)> routes_changed;
    // Ends every running session of the model.
    std::function<void(const std::string&)> cancel_sessions;
    // A node that is to get nothing new. May be empty.
    std::function<bool(const NodeId&)> is_closed = nullptr;
    EventLog* events = nullptr;  // Or none.
  };

  ModelLoads(World world, const RouteTableOptions& options);
  ~ModelLoads();  // Waits for a read in progress.

  // A model in service, as a request needs it.
  struct Served {
    std::shared_ptr<const ModelFile> file;
    int32_t context_tokens_max = 0;
  };
  // `name` empty: the only one in service. Nothing when there is none. Any thread.
  std::optional<Served> Find(const std::string& name) const ABSL_LOCKS_EXCLUDED(mu_);
  // All in service, by name. Any thread.
  std::map<std::string, Served> InService() const ABSL_LOCKS_EXCLUDED(mu_);

  // Before the loop runs: takes the stored plans into service again, of each model the newest, if
  // its file is still the one it was made for. What cannot be taken up is logged and left in the
  // store, except older plans of the same model, which are forgotten. Blocks.
  void Restore(const std::vector<StoredPlan>& plans);

  // Keeps trying, whenever a node joins, until this model is placed.
  void LoadWhenPossible(const v1::LoadModelRequest& request);

  // Watched by `stream` until the model is ready or has failed.
  void Load(LoadStreamId stream, const v1::LoadModelRequest& request);
  // The same, watched by nobody: the model's name, or why the load has not begun.
  absl::StatusOr<std::string> BeginLoad(const v1::LoadModelRequest& request);
  void Unload(const std::string& name, absl::AnyInvocable<void(absl::Status)> done);

  // Where the model would go now; changes nothing. kOverloaded when several are asked for already.
  void Preview(const v1::PreviewModelRequest& request, AdminEvents::PreviewReply done);

  void OnNodeReady(const NodeView& node, const std::optional<ShardReport>& holds);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason);
  void OnShardReport(const NodeId& node, Incarnation incarnation, const ShardReport& report);
  // A link between two live nodes failed, says one of its ends. Whoever hears of it tells it here,
  // each time: an old suspicion in RouteFor's `avoid` does not count anew.
  void OnLinkSuspected(const NodeId& from, const NodeId& to);
  void OnTick();

  // Carries out what the table has decided since; says whether there was anything.
  bool CarryOut();
  Instant NextWake() const { return routes_.NextWake(); }

  // As RouteTable::RouteAnyway, which says what becomes of `avoid`.
  absl::StatusOr<Route> RouteFor(const std::string& model, const RouteSuspects& avoid,
                                 uint64_t affinity = 0);
  bool AnyReady() const;
  // Plans made in place of one in force, by (model, why: "lost" layers or a "link").
  using Replans = std::map<std::pair<std::string, std::string>, uint64_t>;
  const Replans& replans() const { return replans_; }
  std::vector<ClusterModel> List() const;
  std::vector<std::string> Problems() const;

 private:
  // A model on its way to service, or in it.
  struct Entry {
    uint64_t load = 0;  // Tells an answer to an older load of the same name.
    std::string path;
    ModelWish wish;
    std::shared_ptr<const ModelFile> file;
    std::optional<ModelPlan> plan;
    std::optional<ModelPlan> next;  // Takes the plan's place once it is stored.
    bool in_service = false;        // RouteTable knows it.
    std::string note;
    std::vector<LoadStreamId> watchers;
  };

  absl::Status MayLoad(const v1::LoadModelRequest& request) const;
  std::string Begin(const v1::LoadModelRequest& request, std::vector<LoadStreamId> watchers);
  void OnFileRead(const std::string& name, uint64_t load,
                  absl::StatusOr<std::shared_ptr<const ModelFile>> file);
  void OnPlanStored(const std::string& name, uint64_t load, absl::StatusOr<PlanEpoch> epoch);
  absl::Status TakeIntoService(const std::string& name, Entry& entry);
  absl::Status RestoreOne(const StoredPlan& plan);
  void Serve(const std::string& name, const Entry& entry) ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(PlanEpoch epoch);
  void Replan(const RouteActions::Replan& ask);
  void OnReplanStored(const std::string& name, uint64_t load, PlanEpoch in_force, ModelPlan next,
                      absl::StatusOr<PlanEpoch> epoch);
  void RefuseReplan(const std::string& name, PlanEpoch in_force, const absl::Status& why);
  void TryWaiting();
  void Fail(const std::string& name, const absl::Status& status);
  void Note(const std::string& name, Entry& entry, const std::string& note);
  // To the operators' timeline.
  void Tell(EventLevel level, const std::string& kind, const std::string& model,
            const std::string& text);
  void TellState(const ClusterModel& model);
  void TellWatchers(const std::string& name);
  // How many rounds the route keeps in flight, from what its nodes have measured.
  RoundChoice RoundsOf(const Route& route) const;
  // Live nodes that hold nothing but, perhaps, a shard of `model`, and are not closed. Without the
  // lives in `avoid`.
  std::vector<NodeCost> UsableNodes(const std::string& model,
                                    const std::vector<StagePeer>& avoid) const;
  Entry* FindLoad(const std::string& name, uint64_t load);
  ManifestCache CacheOnStoreThread();
  ClusterModel Describe(const std::string& name, const Entry& entry,
                        const std::vector<ModelView>& views) const;

  const World world_;

  RouteTable routes_;
  std::map<std::string, Entry> entries_;
  std::map<NodeId, NodeView> live_;
  std::optional<v1::LoadModelRequest> waiting_;  // Of LoadWhenPossible, not yet placed.
  std::string waiting_problem_;
  int previews_ = 0;  // Under way.
  uint64_t loads_ = 0;
  Replans replans_;

  mutable absl::Mutex mu_;
  std::map<std::string, Served> served_ ABSL_GUARDED_BY(mu_);

  TaskThread reader_;  // Last: its tasks use the others.
};

}  // namespace shardline
