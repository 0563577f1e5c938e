#pragma once

// One life of a shard: its cores, and the device, links and runs that they act on.
//
// Whatever arrives runs the cores on the thread that brought it, one event at a time, and their
// actions are carried out at once: decode, core, device on the way in; device, core, socket on
// the way out, with no other thread in between. The life ends with the shard or with the node's
// incarnation; what is then still on its way to it finds nobody. Weights, KV bytes and the device
// are lent: the next life may go on with them.
//
// Everything here runs on the node's strand.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/strand.h"
#include "node/rounds/head_core.h"
#include "node/shard_loader.h"
#include "node/stage/stage_core.h"
#include "node/transport/call_counter.h"
#include "node/transport/head_service.h"
#include "node/transport/link_client.h"
#include "node/transport/shard_service.h"
#include "node/wake_timer.h"

namespace shardline {

// What heartbeats tell of the shard; zeros without one. Any thread.
struct ShardCounters {
  std::atomic<uint32_t> attempts_open = 0;
  std::atomic<uint32_t> kv_pages_total = 0;
  std::atomic<uint32_t> kv_pages_free = 0;
};

// What a life is lived in. All of it outlives the strand's last task.
struct ShardSurroundings {
  const Clock* clock = nullptr;
  Strand* strand = nullptr;
  WakeTimer* timer = nullptr;    // Posts OnWake.
  CallCounter* calls = nullptr;  // Of the links out.
  ShardCounters* counters = nullptr;

  absl::Duration resume_timeout = absl::Seconds(1);  // As StageOptions.
  SessionId floor;                                   // As StageOptions.
  bool drafts = false;                               // As HeadOptions.
  // Neighbours downstream, from the first bundle for them on, and when they are no more. May be
  // null. On the strand.
  std::function<void(const RouteStage&)> on_peer_wanted;
  std::function<void(const StagePeer&)> on_peer_dropped;
};

class ShardLoop : public std::enable_shared_from_this<ShardLoop> {
 public:
  // REQUIRES: owned by a std::shared_ptr; `order` can be, and `loaded` was made for it.
  ShardLoop(const ShardSurroundings& surroundings, const NodeId& node, Incarnation incarnation,
            const ShardOrder& order, const LoadedShard& loaded);

  ShardLoop(const ShardLoop&) = delete;
  ShardLoop& operator=(const ShardLoop&) = delete;

  // Of this life.
  const LinkIdentity& identity() const { return identity_; }
  const StageStats& stage_stats() const { return stage_.stats(); }
  const HotKvManager& kv() const { return stage_.kv(); }
  // Null without a head.
  const HeadCore* head() const { return head_.get(); }
  const HeadStats* head_stats() const { return head_ == nullptr ? nullptr : &head_->stats(); }

  void OnOpen(const OpenAttempt& open, const std::function<void(absl::StatusOr<OpenReply>)>& reply);
  void OnFence(const FenceOrder& order, const std::function<void(FenceReply)>& reply);
  // What the coordinator says with its heartbeats; see StageCore.
  void OnLiveAttempts(Term term, uint64_t as_of, const std::vector<AttemptKey>& keys);
  void OnFloor(Term term, SessionId floor);
  // A neighbour downstream is silent, gone or wedged: its link breaks, without resume if `reason`
  // is kHeartbeatLost.
  void OnPeerLost(const StagePeer& peer, const absl::Status& reason);
  // It is heard again: its link is dialled at once, and is trusted again once it stands.
  void OnPeerRecovered(const StagePeer& peer);
  void OnLinkOpened(std::shared_ptr<LinkHandle> link);
  void OnInspect(const std::shared_ptr<LinkHandle>& link, const std::vector<InspectRow>& rows);
  void OnBundle(const std::shared_ptr<LinkHandle>& link, uint64_t sequence, StageBundle bundle);
  void OnPlan(const std::shared_ptr<LinkHandle>& link);
  void OnLinkClosed(const std::shared_ptr<LinkHandle>& link);
  void OnRun(RunRequest request, std::shared_ptr<RunStream> stream);
  void OnRunClosed(const AttemptKey& key, const std::shared_ptr<RunStream>& stream);
  void OnWake();

  // New runs are refused from now on; those that run or wait go on until `deadline`, and what is
  // left then ends with `reason`.
  void DrainRuns(const absl::Status& reason, Instant deadline);
  // No run is left, and none will come. True without a head.
  bool runs_drained() const { return head_ == nullptr || head_->drained(); }

  // Ends every attempt, run and link with `reason`; waits for nobody, the device least of all.
  // Nothing may be called afterwards.
  void End(const absl::Status& reason);

 private:
  void OnComputeDone(JobKind kind, ComputeDone done);

  // Carries out what the cores ask for until they are content.
  void Drain();
  void CarryOut(StageActions actions);
  void CarryOut(HeadActions actions);
  void Publish();
  void Submit(ComputeJob job);
  void Send(Forward forward);
  void SendRefusal(const Refusal& refusal);
  LinkClient& LinkTo(const RouteStage& stage);
  LinkClientEvents EventsOf(const StagePeer& peer);
  bool Stands(const std::shared_ptr<LinkHandle>& link) const;

  const ShardSurroundings around_;
  const LinkIdentity identity_;
  const std::shared_ptr<DeviceExecutor> executor_;
  StageCore stage_;
  std::unique_ptr<HeadCore> head_;                              // At the head only.
  std::map<StagePeer, std::unique_ptr<LinkClient>> links_out_;  // One a node.
  std::map<StagePeer, std::shared_ptr<LinkHandle>> links_in_;   // The newest of each peer.
  absl::flat_hash_map<AttemptKey, std::shared_ptr<RunStream>> runs_;
};

}  // namespace shardline
