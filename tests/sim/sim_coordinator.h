#pragma once

// The coordinator process of the simulated cluster: the real membership, routing and sessions
// cores over a store in memory, and what coordinator.cc, model_loads.cc and session_driver.cc do
// around them.
//
// The store outlives it, as a disk does; every call to it takes time, and a crash in between loses
// the question or the answer.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/membership/membership_core.h"
#include "coordinator/routing/route_table.h"
#include "coordinator/sessions/sessions_core.h"
#include "tests/sim/sim_cluster.h"
#include "tests/support/memory_store.h"

namespace shardline::sim {

// The disk below the store.
struct SimDisk {
  testing::MemoryStore* store = nullptr;
  SimTime write_min = 50 * kMicrosecond;
  SimTime write_max = 500 * kMicrosecond;
};

struct SimCoordinatorOptions {
  int number = kFirstCoordinator;
  int rate_ppm = 0;
  int32_t kv_pages = 16;
  std::vector<PlannedShard> shards;  // Of the first plan.
  int32_t replicas = 1;
  int rounds_in_flight = 0;  // 0: as the cost model has it.
  bool prefix_cache = true;
  SessionsOptions sessions;
};

class SimCoordinator final : public SimProcess {
 public:
  SimCoordinator(SimCluster* cluster, SimDisk* disk, const SimCoordinatorOptions& options);
  ~SimCoordinator() override;

  // Takes a new term on the disk as it is. Fails, and stays dead, if that refuses.
  void Start();
  void Kill();

  // From a node, on its Join stream; the coordinator is end 1.
  void OnNodeHello(SimNode* node, Stream* stream, const NodeHello& hello,
                   const std::optional<ShardReport>& holds);
  void OnNodeBeat(Stream* stream, const NodeBeat& beat);
  void OnNodeReport(Stream* stream, const ShardReport& report);
  // From a head, on a RunAttempt stream; the coordinator is end 0.
  void OnRunToken(Stream* stream, const AttemptKey& key, uint32_t index, int32_t token);
  void OnRunEnd(Stream* stream, const AttemptKey& key, const absl::Status& status,
                const std::optional<RunResult>& result);
  // From a client; the coordinator is end 1.
  void OnGenerate(SimClient* client, Stream* stream, const GenerateWords& words);

  Term term() const { return term_; }
  bool ready() const;
  // Sessions that an older term left, and that nobody came back for, are over.
  bool settled() const { return abandoned_ended_; }
  const SessionsCore* sessions() const { return sessions_.get(); }

 private:
  // A call of a client. It may listen to a session that another call has begun.
  struct Caller {
    SimClient* client = nullptr;
    Stream* stream = nullptr;
  };
  // What a session was asked for; kept until the core forgets it.
  struct Payload {
    GenerateWords words;
    uint64_t probe = 0;  // 0: no probe.
    PlanEpoch probe_plan;
    PrefixKey root;
  };

  void OnWake() override;
  void AfterEvent() override;
  bool CarryOutMembership();
  bool CarryOutRoutes();
  bool CarryOutSessions();

  void Lose(const MembershipActions::Lost& action);
  void Welcome(const MembershipActions::Welcome& action);
  void Refuse(JoinStreamId stream);
  absl::Status Restore();
  Plan FirstPlan() const;
  void Replan(const RouteActions::Replan& ask);
  void OnReplanStored(Plan plan, PlanEpoch in_force, const absl::StatusOr<PlanEpoch>& epoch);
  void EndAbandoned();
  void RaiseFloor();
  Stream* StreamOf(const NodeId& node) const;

  void Grant(const SessionsActions::Grant& action);
  void Fence(const SessionsActions::Fence& action);
  void Open(const SessionsActions::Open& action);
  void NamePages(const SessionsActions::Open& action, OpenAttempt& open);
  void StartRun(const SessionsActions::Run& action);
  void Finish(const SessionsActions::Finish& action);
  void End(const SessionsActions::End& action);
  void Rebind(const SessionsActions::Rebind& action);
  void Tell(RequestId client, ClientWords words);
  void Dismiss(RequestId client, const absl::Status& status, uint32_t tokens);
  void StartProbe(const RouteActions::Probe& action);

  void OnBrokenDisk();
  // Runs `work` on the disk after what was asked before, then `then` here.
  template <typename Work, typename Then>
  void Store(Work work, Then then);

  SimCluster* const cluster_;
  SimDisk* const disk_;
  const SimCoordinatorOptions options_;

  Term term_;
  SimTime disk_free_at_ = 0;
  std::unique_ptr<MembershipCore> membership_;
  std::unique_ptr<RouteTable> routes_;
  std::unique_ptr<SessionsCore> sessions_;
  std::optional<Plan> plan_;

  uint64_t join_streams_ = 0;
  std::map<JoinStreamId, Stream*> streams_;
  std::map<Stream*, JoinStreamId> stream_ids_;
  std::map<JoinStreamId, SimNode*> diallers_;
  std::map<JoinStreamId, std::optional<ShardReport>> holds_;
  std::map<NodeId, JoinStreamId> stream_of_node_;

  uint64_t requests_ = 0;
  std::map<RequestId, Caller> callers_;
  std::map<RequestId, Payload> payloads_;
  std::map<AttemptKey, std::string> head_capabilities_;
  std::map<StagePeer, uint64_t> keys_;
  SessionId floor_;
  bool abandoned_ended_ = false;
  bool out_of_date_ = false;
  std::map<AttemptKey, Stream*> runs_;
};

template <typename Work, typename Then>
void SimCoordinator::Store(Work work, Then then) {
  SimContext& sim = context();
  disk_free_at_ = std::max(disk_free_at_, sim.queue.now()) +
                  sim.rng.Between(disk_->write_min, disk_->write_max);
  sim.queue.At(disk_free_at_, this, [this, work = std::move(work), then = std::move(then)] {
    context().trace.Add(TraceKind::kStore, number());
    auto result = work(*disk_->store);
    if (disk_->store->broken()) return OnBrokenDisk();
    After(context().rng.Between(1 * kMicrosecond, 50 * kMicrosecond),
          [this, then, result = std::move(result)]() mutable {
            context().trace.Add(TraceKind::kStored, number());
            then(std::move(result));
          });
  });
}

}  // namespace shardline::sim
