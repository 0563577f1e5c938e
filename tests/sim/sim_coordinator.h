#pragma once

// The coordinator process of the simulated cluster: the real membership, routing and sessions
// cores over a store in memory, and what coordinator.cc, model_loads.cc and session_driver.cc do
// around them.
//
// The store outlives it, as a disk does; every call to it takes time, and a crash in between loses
// the question or the answer.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
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
  std::vector<LayerRange> ranges;  // Of the plan, in ring order.
  std::vector<NodeId> planned;     // The node of each.
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
  const SessionsCore* sessions() const { return sessions_.get(); }

 private:
  struct Caller {
    SimClient* client = nullptr;  // Null for a probe.
    Stream* stream = nullptr;
    uint64_t probe = 0;
    GenerateWords words;
    Route route;
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
  Stream* StreamOf(const NodeId& node) const;

  void Grant(const SessionsActions::Grant& action);
  void Fence(const SessionsActions::Fence& action);
  void Open(const SessionsActions::Open& action);
  void StartRun(const SessionsActions::Run& action);
  void Finish(const SessionsActions::Finish& action);
  void End(const SessionsActions::End& action);
  void Tell(RequestId request, ClientWords words);
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
  std::map<AttemptKey, Stream*> runs_;
};

}  // namespace shardline::sim
