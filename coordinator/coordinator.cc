#include "coordinator/coordinator.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/transport/node_conversion.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr size_t kLoopTasksMax = 65536;
constexpr absl::Duration kServerDrain = absl::Milliseconds(500);
constexpr absl::Duration kEndingLimit = absl::Seconds(2);  // For records and fences at the end.
constexpr absl::Duration kProbeBudget = absl::Seconds(60);
constexpr std::string_view kProbeTenant = "shardline.probe";

// Nobody knows what the disk holds: clients come back to the next coordinator, which reads it anew.
// An orderly end would be told from records that cannot be written.
void StopAtOnce(const absl::Status& status) {
  LogError("the store is broken; stopping at once", {{"status", status}});
  std::_Exit(1);
}

// One greedy token behind one prompt token: what proves a ring.
PreparedRequest ProbeRequest(std::shared_ptr<const ModelFile> file) {
  PreparedRequest out;
  out.prompt = {file->tokenizer->bos_id().value_or(0)};
  out.new_tokens_max = 1;
  out.no_prefix_cache = true;
  out.budget = kProbeBudget;
  out.file = std::move(file);
  return out;
}

// Waits for the end of a probe.
class ProbeWatch final : public SessionObserver {
 public:
  explicit ProbeWatch(absl::AnyInvocable<void(absl::Status)> done) : done_(std::move(done)) {}

  bool OnToken(const SessionToken&) override { return true; }
  void OnEnd(const SessionEnd& end) override { done_(end.status); }

 private:
  absl::AnyInvocable<void(absl::Status)> done_;
};

}  // namespace

absl::Status Coordinator::Busy() {
  return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(1)},
                     "the coordinator is overloaded or shutting down");
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                const Clock* clock) {
  SL_RETURN_IF_ERROR(options.Validate());
  SL_ASSIGN_OR_RETURN(DataDirLock lock, DataDirLock::Take(options.data_dir));
  const std::string path = (std::filesystem::path(options.data_dir) / "coordinator.db").string();
  SL_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                      OpenSqliteStore(path, {.clock = clock, .on_broken = StopAtOnce}));
  if (options.restore_term.has_value()) {
    SL_RETURN_IF_ERROR(store->RaiseGeneration(Term(*options.restore_term)));
    LogInfo("a restored store begins a new generation", {{"above_term", *options.restore_term}});
  }
  SL_ASSIGN_OR_RETURN(const Term term, store->BeginTerm());
  SL_ASSIGN_OR_RETURN(const Incarnation first, store->NextIncarnationBlock(term));
  SL_ASSIGN_OR_RETURN(const int64_t fenced, store->FenceAllOpen(term));
  SL_ASSIGN_OR_RETURN(const SessionId floor, store->Floor());
  SL_ASSIGN_OR_RETURN(const std::vector<StoredPlan> plans, store->Plans());

  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(options, clock, std::move(lock), std::move(store), term, first, floor));
  coordinator->models_.Restore(plans);
  if (!options.model.empty()) {
    v1::LoadModelRequest request;
    request.set_path(options.model);
    request.set_name(options.model_name);
    request.set_shards(options.shards);
    request.set_replicas(options.replicas);
    request.set_context_tokens_max(options.context_tokens_max);
    request.set_sessions_max(options.sessions_max);
    coordinator->models_.LoadWhenPossible(request);
  }
  // On the loop, so that no event comes before the server and the timer stand.
  absl::Status started;
  coordinator->loop_.Post([c = coordinator.get(), &started] { started = c->Serve(); });
  SL_RETURN_IF_ERROR(started);
  LogInfo("coordinator started", {{"version", kVersion},
                                  {"listen", options.listen},
                                  {"port", coordinator->port()},
                                  {"term", term},
                                  {"store", path},
                                  {"attempts_fenced", fenced}});
  coordinator->events_.Add({.kind = "coordinator_started",
                            .text = absl::StrCat("the coordinator ", std::string(kVersion),
                                                 " began term ", term.value())});
  return coordinator;
}

Coordinator::Coordinator(const CoordinatorOptions& options, const Clock* clock, DataDirLock lock,
                         std::unique_ptr<Store> store, Term term, Incarnation first_incarnation,
                         SessionId floor)
    : options_(options),
      clock_(clock),
      term_(term),
      lock_(std::move(lock)),
      events_(term),
      loop_(kLoopTasksMax),
      store_(std::move(store), &loop_),
      join_(this),
      inference_(this, static_cast<size_t>(options.client_events_max)),
      admin_(this),
      membership_({.heartbeat = options.heartbeat, .lease = options.lease, .term = term},
                  first_incarnation),
      sessions_(
          {.clock = clock,
           .loop = &loop_,
           .store = &store_,
           .nodes = &nodes_,
           .term = term,
           .find_route = [this](const std::string& model, const RouteSuspects& avoid,
                                uint64_t affinity) { return FindRoute(model, avoid, affinity); },
           .suspect_link = [this](const NodeId& from,
                                  const NodeId& to) { models_.OnLinkSuspected(from, to); },
           .restarted =
               [this](const AttemptKey& to, const absl::Status& reason) {
                 restarts_.push_back({to, reason});
               },
           .prefix_cache = options.prefix_cache},
          {.admission = {.sessions_max = options.requests_max, .waiting_max = options.queue},
           .route_retry = options.route_retry}),
      models_(
          {.clock = clock,
           .loop = &loop_,
           .store = &store_,
           .admin = &admin_,
           .term = term,
           .chunk_tokens_max = static_cast<int32_t>(options.chunk_tokens_max),
           .send =
               [this](const NodeId& node, v1::CoordinatorMessage message) {
                 auto stream = stream_of_node_.find(node);
                 if (stream != stream_of_node_.end()) {
                   join_.Send(stream->second, std::move(message));
                 }
               },
           .probe =
               [this](const Route& route, std::shared_ptr<const ModelFile> file,
                      absl::AnyInvocable<void(absl::Status)> done) {
                 sessions_.Run({.model = route.model,
                                .prepared = ProbeRequest(std::move(file)),
                                .identity = {.tenant = std::string(kProbeTenant)}},
                               route, std::make_unique<ProbeWatch>(std::move(done)));
               },
           // Who waits for a route asks again at once, not with its next try.
           .routes_changed = [this](const std::string&) { sessions_.OnRoutesChanged(); },
           .cancel_sessions = [this](const std::string& model) { sessions_.CancelModel(model); },
           .is_closed = [this](const NodeId& node) { return drains_.IsClosed(node); },
           .events = &events_},
          {.replan_after = options.replan_after}),
      ledger_(&store_, term, floor, clock->Now(), {}) {
  loop_.SetAfterEach([this] { Pump(); });
}

Coordinator::~Coordinator() { Shutdown(); }

absl::Status Coordinator::Serve() {
  SL_ASSIGN_OR_RETURN(
      server_, CoordinatorServer::Start(options_.listen,
                                        {join_.service(), inference_.service(), admin_.service()}));
  if (!options_.metrics_listen.empty()) {
    SL_ASSIGN_OR_RETURN(metrics_,
                        MetricsServer::Start(options_.metrics_listen, [this] { return Scrape(); }));
    LogInfo("metrics", {{"listen", options_.metrics_listen}, {"port", metrics_->port()}});
  }
  if (!options_.http.empty()) SL_RETURN_IF_ERROR(ServeHttp());
  timer_ = std::make_unique<WakeTimer>(clock_, [this] {
    loop_.Post([this] {
      membership_.OnTick(clock_->Now());
      drains_.OnTick(clock_->Now());
      models_.OnTick();
      sessions_.OnTick();
      ledger_.OnTick(clock_->Now());
    });
  });
  return absl::OkStatus();
}

void Coordinator::Shutdown() {
  if (std::exchange(stopped_, true)) return;
  if (gateway_ != nullptr) gateway_->Drain();
  loop_.Post([this] { stopping_ = true; });
  if (server_ != nullptr) {
    absl::MutexLock lock(&idle_mu_);
    idle_mu_.AwaitWithTimeout(absl::Condition(&quiet_), options_.drain);
  }
  loop_.Post([this] {
    shutting_down_ = true;
    DismissDrainWaiters();
    sessions_.OnShutdown();
  });
  if (server_ != nullptr) {
    absl::MutexLock lock(&idle_mu_);
    idle_mu_.AwaitWithTimeout(absl::Condition(&idle_), kEndingLimit);
  }
  StopHttp(kServerDrain);
  if (server_ != nullptr) server_->Shutdown(kServerDrain);
  metrics_.reset();
  nodes_.Shutdown();
  if (timer_ != nullptr) timer_->Stop();
  store_.Stop();
  loop_.Close();
  LogInfo("coordinator stopped",
          {{"sessions", sessions_.stats().started}, {"completed", sessions_.stats().completed}});
}

void Coordinator::OnNodeMessage(JoinStreamId stream, v1::NodeMessage message) {
  const bool posted = loop_.TryPost([this, stream, message = std::move(message)] {
    if (!shutting_down_) TakeNodeMessage(stream, message);
  });
  if (!posted) join_.End(stream, Busy());
}

void Coordinator::OnNodeStreamEnd(JoinStreamId stream) {
  loop_.Post([this, stream] {
    holds_.erase(stream);
    if (!shutting_down_) membership_.OnStreamClosed(stream, clock_->Now());
  });
}

void Coordinator::TakeNodeMessage(JoinStreamId stream, const v1::NodeMessage& message) {
  const Instant now = clock_->Now();
  if (message.has_hello()) {
    absl::StatusOr<NodeHello> hello = FromProto(message.hello());
    if (!hello.ok()) return Refuse(stream, hello.status());
    holds_[stream] = FromProto(message.hello().shard());
    membership_.OnHello(stream, *hello, now);
  } else if (message.has_heartbeat()) {
    const v1::Heartbeat& beat = message.heartbeat();
    membership_.OnBeat(stream, FromProto(beat), now);
    const auto node = node_of_stream_.find(stream);
    if (beat.draining() && node != node_of_stream_.end()) {
      drains_.OnLeaving(node->second, absl::Milliseconds(beat.drain_ms()), now);
    }
  } else if (message.has_shard()) {
    auto node = node_of_stream_.find(stream);
    if (node == node_of_stream_.end()) return;  // Not welcomed, or lost already.
    const std::optional<NodeView> view = membership_.Find(node->second, now);
    const std::optional<ShardReport> report = FromProto(message.shard());
    if (view.has_value() && report.has_value()) {
      models_.OnShardReport(node->second, view->incarnation, *report);
    }
  } else {
    Refuse(stream, MakeFailure(FailureKind::kInvalidRequest,
                               "join: a message of a kind this build does not know"));
  }
}

// After every event: carry out what the cores decided until nothing is left, then set the timer.
void Coordinator::Pump() {
  while (CarryOutMembership() || CarryOutDrains() || sessions_.CarryOut() || models_.CarryOut()) {
  }
  TellRestarts();
  const bool ready = models_.AnyReady() && !stopping_ && Serving().ok();
  if (ready != ready_told_ && server_ != nullptr) {
    server_->SetReady(ready);
    ready_told_ = ready;
  }
  if (timer_ != nullptr) {
    timer_->WakeAt(std::min({membership_.NextWake(), drains_.NextWake(), models_.NextWake(),
                             sessions_.NextWake(), ledger_.NextWake()}));
  }
  if (stopping_ && sessions_.running_count() == 0) {
    absl::MutexLock lock(&idle_mu_);
    quiet_ = true;
    idle_ = shutting_down_ && sessions_.idle();
  }
}

bool Coordinator::CarryOutMembership() {
  const MembershipActions actions = membership_.TakeActions();
  if (actions.empty()) return false;
  for (const MembershipActions::LedgerOutOfDate& action : actions.out_of_date) {
    OnLedgerOutOfDate(action);
  }
  for (const MembershipActions::Lost& action : actions.lost) Lose(action);
  for (const MembershipActions::Refuse& action : actions.refuse) {
    Refuse(action.stream, action.status);
  }
  for (const MembershipActions::Welcome& action : actions.welcome) Welcome(action);
  for (const MembershipActions::Reply& action : actions.reply) Reply(action);
  for (const MembershipActions::PeerSilent& action : actions.silent) {
    LogWarning("a node does not hear its neighbour",
               {{"node", action.from.node}, {"neighbour", action.to.node}});
    events_.Add({.level = EventLevel::kWarning,
                 .kind = "link_silent",
                 .text = absl::StrCat(action.from.node.value(), " does not hear its neighbour ",
                                      action.to.node.value()),
                 .node = action.from.node.value()});
    // Either end may be the sender of the link between them.
    models_.OnLinkSuspected(action.from.node, action.to.node);
    models_.OnLinkSuspected(action.to.node, action.from.node);
  }
  return true;
}

void Coordinator::Reply(const MembershipActions::Reply& action) {
  v1::CoordinatorMessage message;
  v1::HeartbeatReply& reply = *message.mutable_heartbeat();
  reply.set_number(action.number);
  reply.set_floor(ledger_.floor().value());
  const LiveAttempts live = sessions_.LiveOn(action.node, action.incarnation);
  reply.set_as_of(live.as_of);
  for (const AttemptKey& key : live.attempts) {
    v1::AttemptRef& attempt = *reply.add_live();
    attempt.set_session(key.session.value());
    attempt.set_epoch(key.epoch.value());
  }
  join_.Send(action.stream, std::move(message));
}

// What an old ledger grants may have been granted before, to others. What runs already runs under
// this term's own grants; it ends by its deadline.
void Coordinator::OnLedgerOutOfDate(const MembershipActions::LedgerOutOfDate& action) {
  LogError("the ledger is out of date; nothing is served any more",
           {{"node", action.node}, {"term_seen", action.term_seen}, {"term", term_}});
  events_.Add({.level = EventLevel::kError,
               .kind = "ledger_out_of_date",
               .text = absl::StrCat("the ledger is out of date: ", action.node.value(),
                                    " has obeyed term ", action.term_seen.value(), ", ours is ",
                                    term_.value(), "; nothing is served any more"),
               .node = action.node.value()});
}

absl::Status Coordinator::Serving() const {
  if (!membership_.superseded_by()) return absl::OkStatus();
  return MakeFailure(FailureKind::kStaleEpoch,
                     "this coordinator's ledger is out of date; see shardctl status");
}

void Coordinator::Lose(const MembershipActions::Lost& action) {
  LogWarning("node lost", {{"node", action.node},
                           {"incarnation", action.incarnation},
                           {"kind", FailureKindName(action.kind)},
                           {"reason", action.reason}});
  events_.Add({.level = EventLevel::kWarning,
               .kind = "node_lost",
               .text = absl::StrCat(action.node.value(), " is lost: ", action.reason),
               .node = action.node.value()});
  drains_.OnNodeLost(action.node);
  models_.OnNodeLost(action.node, action.incarnation, action.kind, action.reason);
  sessions_.OnNodeLost(action.node, action.incarnation, action.kind, action.reason);
  while (sessions_.CarryOut()) {  // Fenced before a successor is welcomed.
  }
  auto stream = stream_of_node_.find(action.node);
  if (stream != stream_of_node_.end()) {
    node_of_stream_.erase(stream->second);
    stream_of_node_.erase(stream);
  }
  keys_.erase(action.node);
  nodes_.Disconnect(action.node);
}

void Coordinator::Welcome(const MembershipActions::Welcome& action) {
  const std::optional<NodeView> view = membership_.Find(action.node, clock_->Now());
  auto held = holds_.find(action.stream);
  std::optional<ShardReport> holds;
  if (held != holds_.end()) holds = std::move(held->second);
  holds_.erase(action.stream);
  if (!view.has_value()) return;
  if (!keys_.contains(action.node)) {
    const absl::StatusOr<CapabilityKey> key = CapabilityKey::Make();
    if (!key.ok()) return Refuse(action.stream, key.status());  // Its end loses the node.
    keys_.emplace(action.node, *key);
  }
  const CapabilityKey& key = keys_.at(action.node);
  LogInfo("node joined", {{"node", action.node},
                          {"incarnation", action.incarnation},
                          {"address", view->address},
                          {"device", view->capacity.device},
                          {"reconnect", action.reconnect}});
  events_.Add({.kind = "node_joined",
               .text = absl::StrCat(action.node.value(), action.reconnect ? " is back" : " joined",
                                    " from ", view->address, ", ", view->capacity.device),
               .node = action.node.value()});
  auto old = stream_of_node_.find(action.node);
  if (old != stream_of_node_.end()) node_of_stream_.erase(old->second);
  stream_of_node_[action.node] = action.stream;
  node_of_stream_[action.stream] = action.node;
  if (!action.reconnect || old == stream_of_node_.end()) {
    nodes_.Connect(action.node, view->address, action.incarnation, key);
  }
  v1::CoordinatorMessage message;
  v1::NodeWelcome& welcome = *message.mutable_welcome();
  welcome.set_protocol(action.protocol);
  welcome.set_incarnation(action.incarnation.value());
  welcome.set_term(term_.value());
  welcome.set_heartbeat_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  welcome.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  welcome.set_capability_key(key.ToBytes());
  welcome.set_floor(ledger_.floor().value());
  join_.Send(action.stream, std::move(message));
  store_.Run([node = action.node, address = view->address,
              term = term_](Store& store) { return store.RememberNode(term, node, address); },
             [node = action.node](const absl::Status& status) {
               if (!status.ok())
                 LogWarning("node not remembered", {{"node", node}, {"status", status}});
             });
  sessions_.OnNodeReady(action.node, action.incarnation);
  models_.OnNodeReady(*view, holds);
}

void Coordinator::Refuse(JoinStreamId stream, const absl::Status& status) {
  LogWarning("node refused", {{"stream", stream}, {"status", status}});
  holds_.erase(stream);
  v1::CoordinatorMessage message;
  *message.mutable_refusal() = ToProto(status);
  join_.Send(stream, std::move(message));
  join_.End(stream, status);
}

}  // namespace shardline
