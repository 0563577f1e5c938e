#pragma once

// One node process: listens, joins its coordinator, holds a shard and tells about it.
//
// The node outlives its shard's lives. A new incarnation ends every attempt, run and link of the
// old one; weights, KV bytes and device stay, and a load in progress goes on. What takes long has
// a thread of its own: the device, loading, the beats to the coordinator and to the neighbours, and
// one timer.
//
// Obeys the coordinator of the highest term it has met, and only what that one has signed for this
// incarnation. A node whose id another process has taken serves no more.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/metrics/metrics_server.h"
#include "base/strand.h"
#include "node/courier.h"
#include "node/loading_thread.h"
#include "node/node_metrics.h"
#include "node/node_options.h"
#include "node/obeyed_term.h"
#include "node/shard_loader.h"
#include "node/shard_loop.h"
#include "node/transport/call_counter.h"
#include "node/transport/coordinator_client.h"
#include "node/transport/node_server.h"
#include "node/transport/pulse_client.h"
#include "node/transport/pulse_host.h"
#include "node/transport/run_gate.h"
#include "node/wake_timer.h"
#include "proto/wire/capability.h"

namespace shardline {

struct NodeEvents {
  // Another process has this node's id by now; this one should end. On a thread of the node's.
  std::function<void(const absl::Status&)> on_replaced;
};

class Node {
 public:
  // Listens, then joins the coordinator. `options.node_id` is set; `loader` and `clock` outlive
  // the node. Fails with kInvalidRequest if it cannot listen, or cannot read what it has obeyed.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options, ShardLoader* loader,
                                                     const Clock* clock, NodeEvents events = {});
  // Asks the coordinator for nothing new, and waits until nothing of its sessions is left here:
  // they end, or move to other nodes a little before `timeout` has passed. Returns when nothing is
  // left, when the coordinator cannot be heard, or after `timeout`. Not on a thread of the node's.
  void Drain(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends every attempt with a reason, hangs up, frees the shard. Bounded by a few seconds, unless
  // the device or the disk hangs. Not on a thread of gRPC's.
  ~Node();

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Where it listens.
  const std::string& address() const { return server_->address(); }
  // Of /metrics; 0 when it is off.
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }

 private:
  // What other threads say about this node. Copied in and out whole.
  struct Facts {
    Incarnation incarnation;
    std::optional<CapabilityKey> key;      // Of the incarnation.
    std::optional<LinkIdentity> identity;  // While it holds a shard.
    v1::ShardReport shard;
    uint64_t memory_used_bytes = 0;
    std::shared_ptr<DeviceExecutor> executor;
  };
  // From the call of Drain on.
  struct Leaving {
    Instant move_by;  // What runs here by then is to move.
    int heard = 0;    // Answers of the coordinator since.
    bool lost = false;
    bool empty = false;  // As the last of them said.
  };

  Node(NodeOptions options, ShardLoader* loader, const Clock* clock, NodeEvents events,
       ObeyedTerm obeyed);

  absl::Status Listen();
  absl::Status ServeMetrics();
  void Join();
  void StartPulses();
  void ToStrand(Strand::Task task);
  ShardEvents MakeShardEvents();
  HeadEvents MakeHeadEvents();
  LoadingEvents MakeLoadingEvents();
  CoordinatorEvents MakeCoordinatorEvents();
  v1::NodeHello Hello() const;
  v1::Heartbeat Beat() const;
  StagePeer Self() const ABSL_LOCKS_EXCLUDED(mu_);
  PulseProgress Progress() const ABSL_LOCKS_EXCLUDED(mu_);

  // On a thread of gRPC's.
  absl::Status TakeWelcome(const v1::NodeWelcome& welcome) ABSL_LOCKS_EXCLUDED(obeyed_mu_);
  absl::Status AuthoriseOpen(const v1::OpenRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AuthoriseFence(const v1::FenceRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);

  // Everything from here to the next comment runs on the strand.
  void OnWelcome(Incarnation incarnation, const CapabilityKey& key);
  // What a coordinator says with each beat: see HeartbeatReply.
  void OnHeard(SessionId floor, uint64_t as_of, const std::vector<AttemptKey>& live);
  void OnReplaced(const absl::Status& status);
  void OnLoad(ShardOrder order);
  // The shard it holds or loads belongs to another plan now. Attempts of the old plan end.
  void KeepShard(ShardOrder order);
  void OnUnload(PlanEpoch plan_epoch);
  void OnProgress(uint64_t ticket, uint64_t bytes_done, uint64_t bytes_total);
  void OnLoaded(uint64_t ticket, absl::StatusOr<LoadedShard> loaded);
  void OnLoadFailed(const absl::Status& status);
  void StartLife();
  void EndLife(const std::string& reason);
  void EndLife(const absl::Status& reason);
  NodeFigures Figures() const;
  // What the present life has counted.
  void AddLife(NodeFigures& figures) const;
  // Stops loading, and hands what was loaded back to be freed.
  void DropShard(const std::string& reason);

  void UpdateFacts(const std::function<void(Facts&)>& change) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteHeard(bool any_live) ABSL_LOCKS_EXCLUDED(mu_);
  // Changes the report, and sends it.
  void ReportShard(v1::ShardReport report) ABSL_LOCKS_EXCLUDED(mu_);
  void ReportLoaded() ABSL_LOCKS_EXCLUDED(mu_);
  // On threads of the metrics server.
  absl::StatusOr<std::vector<MetricFamily>> Scrape();
  static v1::ShardReport ReportOf(const ShardOrder& order, v1::ShardState state);

  const NodeOptions options_;
  ShardLoader* const loader_;
  const Clock* const clock_;
  const NodeEvents events_;
  const std::string boot_id_;

  // The strand's.
  Incarnation incarnation_;
  Term term_;                         // Of the coordinator that welcomed it.
  SessionId floor_;                   // The highest heard of.
  std::optional<ShardOrder> wanted_;  // Loading or loaded.
  uint64_t ticket_ = 0;               // Of the load, while it is loading.
  std::optional<LoadedShard> held_;
  std::shared_ptr<ShardLoop> loop_;  // While a shard is held.
  NodeFigures past_;                 // Of the lives before this one.

  mutable absl::Mutex mu_;
  Facts facts_ ABSL_GUARDED_BY(mu_);
  v1::NodeCapacity capacity_ ABSL_GUARDED_BY(mu_);
  CoordinatorClient* reports_to_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Leaving> leaving_ ABSL_GUARDED_BY(mu_);

  mutable absl::Mutex obeyed_mu_;  // Held while it writes its file; taken alone.
  ObeyedTerm obeyed_ ABSL_GUARDED_BY(obeyed_mu_);

  ShardCounters counters_;
  CallCounter calls_;
  RunGate gate_;  // Shut by Drain.
  Strand strand_;
  std::unique_ptr<Courier> courier_;
  std::unique_ptr<WakeTimer> timer_;
  std::unique_ptr<LoadingThread> loading_;
  std::unique_ptr<PulseHost> pulse_host_;
  std::unique_ptr<PulseClient> pulses_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<MetricsServer> metrics_;  // When asked for.
};

}  // namespace shardline
