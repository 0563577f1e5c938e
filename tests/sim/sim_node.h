#pragma once

// One node process of the simulated cluster: the real stage and head cores on a simulated device,
// and what node.cc, shard_loop.cc and the clients in node/transport do around them.
//
// A new incarnation begins a new life of the shard inside the process, with the weights it has; a
// restart of the process begins with nothing.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/membership/node_facts.h"
#include "coordinator/routing/route_table.h"
#include "node/pulse/pulse_core.h"
#include "node/pulse/pulse_hearing.h"
#include "node/rounds/head_core.h"
#include "node/stage/stage_core.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_device.h"

namespace shardline::sim {

struct SimNodeOptions {
  NodeId id;
  int number = 0;
  int rate_ppm = 0;
  int32_t kv_pages = 16;
  int32_t chunk_tokens_max = 8;
  absl::Duration resume_timeout = absl::Seconds(1);
  bool capabilities = true;
  bool drafts = false;
  int head_slots = 64;
  int head_queue = 256;
};

class SimNode final : public SimProcess {
 public:
  SimNode(SimCluster* cluster, const SimNodeOptions& options);

  void Start();
  // `silent`: as the loss of its machine, not of the process alone.
  void Kill(bool silent);
  // Its Join stream breaks, at both ends or at its own alone.
  void BreakJoin();
  // Its head takes nobody new, and by then ends whom it has.
  void DrainHead(SimTime length);
  bool drains() const { return drains_; }
  void AbandonJoin();
  // What a stranger may send who knows the protocol but no key: 0 other content under a step that
  // was taken, 1 a step far ahead, 2 a step of the next epoch, 3 the next step from another
  // sender, 4 an OPEN, 5 a FENCE.
  void TakeForged(int64_t kind);

  // From the coordinator, by call.
  void ServeOpen(const OpenAttempt& open,
                 const std::function<void(absl::StatusOr<OpenReply>)>& reply);
  void ServeFence(const FenceOrder& order,
                  const std::function<void(absl::StatusOr<FenceReply>)>& reply);
  // RunAttempt: this node is end 1 of `stream`.
  void ServeRun(RunOrder order, Stream* stream);

  // From the coordinator, on the Join stream.
  void OnWelcome(const WelcomeWords& welcome);
  void OnBeatReply(const BeatReplyWords& reply);
  void OnLoad(const ShardOrder& order);
  void OnUnload(PlanEpoch plan);
  void OnRefused(Stream* stream);

  // From a peer, on a link; this node is end 1.
  void OnLinkHello(Stream* stream, const StagePeer& from, const StagePeer& to, const Recipe& recipe,
                   uint64_t connection);
  // Frames of older connections arrive, too: to drop them is the core's matter.
  void OnLinkBundle(const StagePeer& from, const StagePeer& to, StageBundle bundle);
  void OnLinkPlan(const StagePeer& from, const StagePeer& to, uint64_t connection,
                  const std::vector<BundleRow>& rows);
  void OnLinkInspect(const StagePeer& from, const StagePeer& to,
                     const std::vector<InspectRow>& rows);
  // From a peer, on a link that this node dialled.
  void OnLinkWelcome(const StagePeer& peer, Stream* stream);
  void OnLinkFailure(const StagePeer& peer, Stream* stream, RowFailure failure);
  void OnLinkStatus(const StagePeer& peer, Stream* stream,
                    const std::vector<InspectStatus>& statuses);
  // Its links to `peer` break at its own end only: what is on its way may still arrive.
  void BreakLinksTo(const NodeId& peer);

  // From a peer, on a pulse stream that it dialled.
  void OnPulseBeat(Stream* stream, uint64_t stream_id, const StagePeer& from, const StagePeer& to,
                   const PulseBeat& beat, PulseConnection connection);
  void OnPulseAnswer(PulseConnection connection, const PulseBeat& answer);

  const NodeId& id() const { return options_.id; }
  Incarnation incarnation() const { return incarnation_; }
  const StageCore* stage() const { return stage_.get(); }
  const HeadCore* head() const { return head_.get(); }
  SimDevice* device() const { return device_.get(); }
  const SimNodeOptions& options() const { return options_; }

 private:
  enum class LinkPhase { kIdle, kConnecting, kOpen };
  struct Link {
    SimNode* other = nullptr;  // The peer's process,
    Wire* wire = nullptr;      // and the way to it.
    LinkPhase phase = LinkPhase::kIdle;
    Stream* stream = nullptr;
    std::deque<StageBundle> waiting;
    SimTime dial_after = 0;
    SimTime pause = 0;
    uint64_t connection = 0;
    std::optional<StageBundle> overtaken;  // Held back by a reordering wire.
  };

  struct Run {
    Stream* stream = nullptr;
    SimCoordinator* asker = nullptr;
  };

  void OnWake() override;

  // The Join stream.
  void Join();
  void OnJoinEnd(Stream* stream);
  void Beat(Stream* stream);
  void Report(ShardState state);
  ShardReport ReportOf(const ShardOrder& order, ShardState state) const;
  void SayHello(Stream* stream);

  // The shard's lives.
  void OnLoaded(const ShardOrder& order);
  void StartLife();
  absl::Status Authorise(const OpenAttempt& open) const;
  void EndLifeOfShard(const std::string& reason);
  void DropShard(const std::string& reason);

  // Carrying out.
  void Drain();
  void CarryOut(StageActions&& actions);
  void CarryOut(HeadActions&& actions);
  void Submit(ComputeJob job);
  void PoisonedBy(const ComputeJob& job);
  void ComeAgain(const ComputeJob& ended);
  void SendForward(Forward forward);
  absl::Status SendOn(const StagePeer& peer, StageBundle bundle);
  Link& LinkTo(const StagePeer& peer);
  void Dial(const StagePeer& peer, Link& link);
  void Transmit(const StagePeer& peer, Link& link, StageBundle bundle);
  void TransmitOnce(const StagePeer& peer, Link& link, StageBundle bundle);
  void OnLinkEnd(const StagePeer& peer, Stream* stream);
  void Redial(const RouteStage& stage);
  void SendInspect(const Inspect& inspect);
  void SendPlan(const Announcement& plan);
  void SendAnswer(const InspectAnswer& answer);
  void SendRefusal(const Refusal& refusal);
  void EndRun(const AttemptKey& key, const absl::Status& status, const AttemptEnd* end);
  bool CarryOutPulses();
  PulseBeat Progress(uint64_t number, uint64_t echo) const;
  StagePeer self() const { return {options_.id, incarnation_}; }

  SimCluster* const cluster_;
  const SimNodeOptions options_;

  // Of the process.
  std::string boot_id_;
  Incarnation incarnation_;
  Term obeyed_;  // On its disk: it outlives the process.
  uint64_t key_ = 0;
  SessionId floor_;
  std::optional<ShardOrder> wanted_;
  bool held_ = false;
  uint64_t load_ticket_ = 0;
  bool report_waits_ = false;  // For a welcome: the hello may have said less.
  std::unique_ptr<SimDevice> device_;
  std::vector<std::unique_ptr<SimDevice>> retired_;  // Events may still name them.

  // Of the Join stream.
  Stream* join_ = nullptr;
  SimCoordinator* joined_ = nullptr;  // At its other end.
  bool welcomed_ = false;
  uint64_t beat_number_ = 0;
  uint64_t echo_ = 0;
  SimTime heard_ = 0;
  SimTime join_pause_ = 0;

  // Of the shard's life.
  uint64_t shard_life_ = 0;
  bool drains_ = false;
  std::unique_ptr<StageCore> stage_;
  std::unique_ptr<HeadCore> head_;
  std::map<StagePeer, Link> links_out_;
  std::map<StagePeer, Stream*> links_in_;
  uint64_t connections_ = 0;
  std::map<StagePeer, uint64_t> newest_in_;  // Connection of each peer.
  std::map<AttemptKey, Run> runs_;
  std::unique_ptr<PulseCore> pulses_;
  std::unique_ptr<PulseHearing> hearing_;
  std::map<PulseConnection, Stream*> pulse_streams_;
  std::map<PulseConnection, StagePeer> pulse_peers_;
};

}  // namespace shardline::sim
