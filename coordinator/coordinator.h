#pragma once

// The coordinator: the one place where its rooms meet.
//
// Owns the loop, the threads beside it (store, reader, timer) and the server, and carries events
// from the shells to the cores and decisions back. Decides nothing itself.
//
// Told to stop it takes no more requests, lets those that run go on for `options.drain`, and then
// ends what is left with a reason.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/metrics/metrics_server.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/data_dir_lock.h"
#include "coordinator/event_loop.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/gateway/http_server.h"

#include "coordinator/gateway/admin_http.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/ledger_keeper.h"
#include "coordinator/membership/drain_core.h"
#include "coordinator/membership/membership_core.h"
#include "coordinator/model_loads.h"
#include "coordinator/served_models.h"
#include "coordinator/session_driver.h"
#include "coordinator/store_thread.h"
#include "coordinator/transport/coordinator_server.h"
#include "coordinator/transport/inference_service.h"
#include "coordinator/transport/join_service.h"
#include "coordinator/transport/node_clients.h"
#include "coordinator/wake_timer.h"
#include "proto/wire/capability.h"

namespace shardline {

class Coordinator final : private NodeStreamEvents, private ClientEvents, private AdminEvents {
 public:
  // Opens the store, takes a new term, fences what an older one left open, restores the model it
  // had, and serves. Errors are one line. `clock` outlives the coordinator.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            const Clock* clock);
  ~Coordinator() override;  // As Shutdown.

  int port() const { return server_->port(); }
  // Of /metrics; 0 when it is off.
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }

  // Of the HTTP API; 0 when it is off.
  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }

  // Takes no more requests, waits for those that run, ends what is left with a reason, tells the
  // nodes, and stops; bounded by `options.drain` and a little. Once is enough.
  void Shutdown() ABSL_LOCKS_EXCLUDED(idle_mu_);

 private:
  Coordinator(const CoordinatorOptions& options, const Clock* clock, DataDirLock lock,
              std::unique_ptr<Store> store, Term term, Incarnation first_incarnation,
              SessionId floor);

  // From the shells, on gRPC threads.
  void OnNodeMessage(JoinStreamId stream, v1::NodeMessage message) override;
  void OnNodeStreamEnd(JoinStreamId stream) override;
  void OnGenerate(RequestId request, v1::GenerateRequest message) override;
  void OnClientGone(RequestId request) override;
  absl::StatusOr<v1::TokenizeReply> OnTokenize(const v1::TokenizeRequest& request) override;
  void WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) override;
  void OnLoadModel(LoadStreamId stream, v1::LoadModelRequest request) override;
  void OnBeginLoad(v1::LoadModelRequest request,
                   absl::AnyInvocable<void(const absl::StatusOr<std::string>&)> done) override;
  void OnUnloadModel(const std::string& name, absl::AnyInvocable<void(absl::Status)> done) override;
  void OnPreviewModel(const v1::PreviewModelRequest& request, PreviewReply done) override;
  void OnCordonNode(const NodeId& node, bool cordon, NodeReply done) override;
  void OnDrainNode(const v1::DrainNodeRequest& request, NodeReply done) override;
  void OnRemoveNode(const NodeId& node, NodeReply done) override;
  void OnListSessions(
      absl::AnyInvocable<void(const absl::StatusOr<v1::SessionList>&)> done) override;
  void OnCancelSession(
      SessionId session, const std::string& reason,
      absl::AnyInvocable<void(const absl::StatusOr<v1::CancelSessionReply>&)> done) override;
  void WithStore(absl::AnyInvocable<void(const absl::StatusOr<Store*>&)> use) override;

  // On the loop.
  absl::Status Serve();
  // The HTTP API: coordinator_http.cc.
  absl::Status ServeHttp();
  void StopHttp(absl::Duration limit);
  void TakeNodeMessage(JoinStreamId stream, const v1::NodeMessage& message);
  void StartGenerate(RequestId request, const v1::GenerateRequest& message,
                     std::optional<absl::StatusOr<PreparedRequest>> prepared);
  void Pump();
  bool CarryOutMembership();

  // Where the events of a call go. Any thread.
  ClientSink* SinkOf(RequestId request);

  // In one line, however many there were: a node that dies takes hundreds along.
  void TellRestarts();

  // What a call gets that the loop does not take.
  static absl::Status Busy();

  // Cordons and drains: coordinator_drains.cc.
  bool CarryOutDrains();
  void AnswerDrainWaiters(const NodeId& node);
  void DismissDrainWaiters();
  // A route without nodes that are to get nothing new.
  absl::StatusOr<Route> FindRoute(const std::string& model, const RouteSuspects& avoid,
                                  uint64_t affinity = 0);
  absl::StatusOr<v1::NodeSummary> SummaryOf(const NodeId& node);
  // OK unless layers would have no other node that takes sessions.
  absl::Status MayDrain(const NodeId& node) const;
  std::map<NodeId, NodeDutyView> Duties() const;

  void Lose(const MembershipActions::Lost& action);
  void Welcome(const MembershipActions::Welcome& action);
  void Reply(const MembershipActions::Reply& action);
  void OnLedgerOutOfDate(const MembershipActions::LedgerOutOfDate& action);
  // Why nothing is served; OK if it is.
  absl::Status Serving() const;
  void Refuse(JoinStreamId stream, const absl::Status& status);
  ClusterView View();
  CoordinatorFigures Figures();

  // On threads of the metrics server.
  absl::StatusOr<std::vector<MetricFamily>> Scrape();

  // Constant after construction.
  const CoordinatorOptions options_;
  const Clock* const clock_;
  const Term term_;
  const DataDirLock lock_;

  // In the order in which they may use what stands above them.
  EventLog events_;
  EventLoop loop_;
  StoreThread store_;
  JoinService join_;
  InferenceService inference_;
  AdminService admin_;
  NodeClients nodes_;

  // Owned by the loop.
  MembershipCore membership_;
  DrainCore drains_;
  SessionDriver sessions_;
  ModelLoads models_;
  LedgerKeeper ledger_;
  std::map<NodeId, JoinStreamId> stream_of_node_;             // Of live nodes.
  absl::flat_hash_map<JoinStreamId, NodeId> node_of_stream_;  // The same, backwards.
  std::map<NodeId, std::vector<NodeReply>> drain_waiters_;    // While the node drains.
  absl::flat_hash_map<NodeId, CapabilityKey> keys_;           // Of live incarnations.
  absl::flat_hash_map<JoinStreamId, std::optional<ShardReport>>
      holds_;                                                  // Of hellos not yet welcomed.
  std::vector<std::pair<AttemptKey, absl::Status>> restarts_;  // Not yet told to `events_`.
  bool ready_told_ = false;
  bool stopping_ = false;       // No more requests are taken.
  bool shutting_down_ = false;  // And those that ran are being ended.

  absl::Mutex idle_mu_;
  bool quiet_ ABSL_GUARDED_BY(idle_mu_) = false;  // Stopping, and no request runs any more.
  bool idle_ ABSL_GUARDED_BY(idle_mu_) = false;   // Shutting down, and nothing is kept any more.

  std::unique_ptr<CoordinatorServer> server_;
  RequestLog requests_;
  std::unique_ptr<ApiKeyFile> api_keys_;  // With the HTTP API, if there are keys:
  std::unique_ptr<ServedModels> served_;  // and with it in any case.
  std::unique_ptr<AdminHttp> admin_http_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WakeTimer> timer_;
  std::unique_ptr<MetricsServer> metrics_;  // When asked for.
  bool stopped_ = false;                    // Shutdown is for one thread.
};

}  // namespace shardline
