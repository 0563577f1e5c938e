#pragma once

// One node process: wires the stage and head cores to links, services, device and coordinator.
//
// A strand is the loop of the shard: whatever arrives runs the cores on the thread that brought it,
// one event at a time, and carries their actions out at once: decode, core, device on the way in;
// device, core, socket on the way out, with no other thread in between. What takes long has a
// thread of its own: the device, loading, the beats to the coordinator, and one timer.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/strand.h"
#include "node/node_options.h"
#include "node/rounds/head_core.h"
#include "node/shard_loader.h"
#include "node/stage/stage_core.h"
#include "node/transport/call_counter.h"
#include "node/transport/coordinator_client.h"
#include "node/transport/link_client.h"
#include "node/transport/node_server.h"
#include "node/wake_timer.h"

namespace shardline {

class Node {
 public:
  // Listens, then joins the coordinator. `options.node_id` is set; `loader` and `clock` outlive
  // the node. Fails with kInvalidRequest if it cannot listen.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options, ShardLoader* loader,
                                                     const Clock* clock);
  // Ends every attempt with a reason, hangs up, frees the shard. Bounded by a few seconds, unless
  // the device or the disk hangs. Not on a thread of gRPC's.
  ~Node();

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Where it listens.
  const std::string& address() const { return server_->address(); }

 private:
  // What the node holds of a model, and the cores that run it. Serial numbers tell answers to an
  // older shard's questions.
  struct Shard {
    ShardOrder order;
    uint64_t serial = 0;
    LinkIdentity identity;
    std::unique_ptr<StageCore> stage;
    std::unique_ptr<HeadCore> head;  // At the head only.
    std::shared_ptr<DeviceExecutor> executor;
  };

  // What other threads say about this node. Copied in and out whole.
  struct Facts {
    Incarnation incarnation;
    std::optional<LinkIdentity> identity;  // While it holds a shard.
    v1::ShardReport shard;
    uint64_t memory_used_bytes = 0;
    std::shared_ptr<DeviceExecutor> executor;
  };

  Node(NodeOptions options, ShardLoader* loader, const Clock* clock);

  absl::Status Listen();
  void Join();
  ShardEvents MakeShardEvents();
  HeadEvents MakeHeadEvents();
  CoordinatorEvents MakeCoordinatorEvents();
  v1::NodeHello Hello() const;
  v1::Heartbeat Beat() const;

  // Everything from here to the next comment runs on the strand.
  void OnOpen(const OpenAttempt& open, const std::function<void(absl::StatusOr<OpenReply>)>& reply);
  void OnFence(const FenceOrder& order, const std::function<void(FenceReply)>& reply);
  void OnLinkOpened(std::shared_ptr<LinkHandle> link);
  void OnBundle(const std::shared_ptr<LinkHandle>& link, uint64_t sequence, StageBundle bundle);
  void OnLinkClosed(const std::shared_ptr<LinkHandle>& link);
  void OnRun(RunRequest request, std::shared_ptr<RunStream> stream);
  void OnRunClosed(const AttemptKey& key, const std::shared_ptr<RunStream>& stream);
  void OnComputeDone(uint64_t serial, JobKind kind, ComputeDone done);
  void OnWake();
  void OnWelcome(Incarnation incarnation);
  void OnLoad(ShardOrder order);
  void OnUnload(PlanEpoch plan_epoch);
  void OnLoaded(const ShardOrder& order, absl::StatusOr<LoadedShard> loaded);
  // Ends what runs on the shard with `reason` and hands it to the loading thread to be freed.
  void DropShard(const absl::Status& reason);
  // Carries out what the cores ask for until they are content.
  void Drain();
  void CarryOut(StageActions actions);
  void CarryOut(HeadActions actions);
  void Submit(ComputeJob job);
  void Send(Forward forward);
  void SendRefusal(const Refusal& refusal);
  LinkClient& LinkTo(const RouteStage& stage);

  // The loading thread.
  void RunLoads();
  void LoadShard(const ShardOrder& order, uint64_t serial);

  void UpdateFacts(const std::function<void(Facts&)>& change) ABSL_LOCKS_EXCLUDED(mu_);
  // Changes the report, and sends it.
  void ReportShard(v1::ShardReport report) ABSL_LOCKS_EXCLUDED(mu_);
  static v1::ShardReport ReportOf(const ShardOrder& order, v1::ShardState state);

  const NodeOptions options_;
  ShardLoader* const loader_;
  const Clock* const clock_;
  const std::string boot_id_;

  // The strand's.
  Incarnation incarnation_;
  uint64_t serial_ = 0;
  std::optional<ShardOrder> wanted_;  // Loading or loaded.
  std::unique_ptr<Shard> shard_;
  std::map<StagePeer, std::unique_ptr<LinkClient>> links_out_;
  std::map<StagePeer, std::shared_ptr<LinkHandle>> links_in_;  // The newest of each peer.
  absl::flat_hash_map<AttemptKey, std::shared_ptr<RunStream>> runs_;

  // Counters of the strand that heartbeats carry.
  std::atomic<uint32_t> attempts_open_ = 0;
  std::atomic<uint32_t> kv_pages_total_ = 0;
  std::atomic<uint32_t> kv_pages_free_ = 0;
  // The plan that loading should go on for; another one stops it.
  std::atomic<uint64_t> loading_serial_ = 0;

  mutable absl::Mutex mu_;
  Facts facts_ ABSL_GUARDED_BY(mu_);
  v1::NodeCapacity capacity_ ABSL_GUARDED_BY(mu_);
  CoordinatorClient* reports_to_ ABSL_GUARDED_BY(mu_) = nullptr;

  CallCounter calls_;  // Of links_out_.
  Strand strand_;
  Mailbox<std::function<void()>> loads_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<WakeTimer> timer_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::thread loading_thread_;
};

}  // namespace shardline
