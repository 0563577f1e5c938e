#include "coordinator/coordinator.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/transport/node_conversion.h"
#include "proto/wire/failure_conversion.h"

namespace shardline {
namespace {

constexpr size_t kLoopTasksMax = 65536;
constexpr absl::Duration kServerDrain = absl::Milliseconds(500);
constexpr absl::Duration kProbeBudget = absl::Seconds(60);

absl::Status Busy() {
  return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(1)},
                     "the coordinator is overloaded or shutting down");
}

// One greedy token behind one prompt token: what proves a ring.
PreparedRequest ProbeRequest(std::shared_ptr<const ModelFile> file) {
  PreparedRequest out;
  out.prompt = {file->tokenizer->bos_id().value_or(0)};
  out.new_tokens_max = 1;
  out.budget = kProbeBudget;
  out.file = std::move(file);
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                const Clock* clock) {
  SL_RETURN_IF_ERROR(options.Validate());
  SL_ASSIGN_OR_RETURN(DataDirLock lock, DataDirLock::Take(options.data_dir));
  const std::string path = (std::filesystem::path(options.data_dir) / "coordinator.db").string();
  SL_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, OpenSqliteStore(path));
  SL_ASSIGN_OR_RETURN(const Term term, store->BeginTerm());
  SL_ASSIGN_OR_RETURN(const Incarnation first, store->NextIncarnationBlock(term));
  SL_ASSIGN_OR_RETURN(const int64_t fenced, store->FenceAllOpen(term));
  SL_ASSIGN_OR_RETURN(const std::vector<StoredPlan> plans, store->Plans());

  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(options, clock, std::move(lock), std::move(store), term, first));
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
  return coordinator;
}

Coordinator::Coordinator(const CoordinatorOptions& options, const Clock* clock, DataDirLock lock,
                         std::unique_ptr<Store> store, Term term, Incarnation first_incarnation)
    : options_(options),
      clock_(clock),
      term_(term),
      lock_(std::move(lock)),
      loop_(kLoopTasksMax),
      store_(std::move(store), &loop_),
      join_(this),
      inference_(this, static_cast<size_t>(options.client_events_max)),
      admin_(this),
      membership_({.heartbeat = options.heartbeat, .lease = options.lease}, first_incarnation),
      sessions_({.clock = clock,
                 .loop = &loop_,
                 .store = &store_,
                 .nodes = &nodes_,
                 .clients = &inference_,
                 .term = term},
                {.sessions_max = options.requests_max}),
      models_(
          {.clock = clock,
           .loop = &loop_,
           .store = &store_,
           .admin = &admin_,
           .term = term,
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
                 sessions_.Probe(ProbeRequest(std::move(file)), route, std::move(done));
               },
           .routes_changed = {},
           .cancel_sessions = [this](const std::string& model) { sessions_.CancelModel(model); }},
          {.replan_after = options.replan_after}) {
  loop_.SetAfterEach([this] { Pump(); });
}

Coordinator::~Coordinator() { Shutdown(); }

absl::Status Coordinator::Serve() {
  SL_ASSIGN_OR_RETURN(
      server_, CoordinatorServer::Start(options_.listen,
                                        {join_.service(), inference_.service(), admin_.service()}));
  timer_ = std::make_unique<WakeTimer>(clock_, [this] {
    loop_.Post([this] {
      membership_.OnTick(clock_->Now());
      models_.OnTick();
      sessions_.OnTick();
    });
  });
  return absl::OkStatus();
}

void Coordinator::Shutdown() {
  if (std::exchange(stopped_, true)) return;
  loop_.Post([this] {
    shutting_down_ = true;
    sessions_.OnShutdown();
  });
  if (server_ != nullptr) {
    absl::MutexLock lock(&idle_mu_);
    idle_mu_.AwaitWithTimeout(absl::Condition(&idle_), options_.drain);
  }
  if (server_ != nullptr) server_->Shutdown(kServerDrain);
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
    membership_.OnBeat(stream, FromProto(message.heartbeat()), now);
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

void Coordinator::OnGenerate(RequestId request, v1::GenerateRequest message) {
  // Tokenizing takes time in proportion to the prompt: here, not on the loop. A model that is not
  // in service is left to the loop to explain.
  const std::optional<ModelLoads::Served> served = models_.Find(message.model());
  std::optional<absl::StatusOr<PreparedRequest>> prepared;
  if (served.has_value()) {
    prepared = PrepareRequest(message, served->file, served->context_tokens_max);
  }
  const bool posted = loop_.TryPost(
      [this, request, message = std::move(message), prepared = std::move(prepared)]() mutable {
        StartGenerate(request, message, std::move(prepared));
      });
  if (!posted) inference_.End(request, Busy());
}

void Coordinator::StartGenerate(RequestId request, const v1::GenerateRequest& message,
                                std::optional<absl::StatusOr<PreparedRequest>> prepared) {
  if (shutting_down_) return inference_.End(request, Busy());
  absl::StatusOr<Route> route = models_.RouteFor(message.model(), {});
  if (!route.ok()) return inference_.End(request, route.status());
  if (!prepared.has_value()) {  // No name was given, and of several models one is ready.
    const std::optional<ModelLoads::Served> served = models_.Find(route->model);
    if (!served.has_value()) return inference_.End(request, Busy());
    prepared = PrepareRequest(message, served->file, served->context_tokens_max);
  }
  if (!prepared->ok()) return inference_.End(request, prepared->status());
  // Between tokenizing and now the name may have been given to another file.
  if ((*prepared)->file->id != route->model_id) return inference_.End(request, Busy());
  sessions_.Generate(request, **std::move(prepared), *std::move(route));
}

void Coordinator::OnClientGone(RequestId request) {
  loop_.Post([this, request] { sessions_.OnClientGone(request); });
}

absl::StatusOr<v1::TokenizeReply> Coordinator::OnTokenize(const v1::TokenizeRequest& request) {
  const std::optional<ModelLoads::Served> served = models_.Find(request.model());
  if (!served.has_value()) {
    return absl::NotFoundError(absl::StrCat("no model ", request.model(), " is in service"));
  }
  SL_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      served->file->tokenizer->Encode(
          request.text(), {.add_special = true, .parse_special = request.parse_special()}));
  v1::TokenizeReply reply;
  reply.mutable_ids()->Assign(ids.begin(), ids.end());
  return reply;
}

void Coordinator::WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) {
  // Shared with the refusal: a strand that refuses drops the task.
  auto shared = std::make_shared<decltype(use)>(std::move(use));
  const bool posted = loop_.TryPost([this, shared] { (*shared)(View()); });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnLoadModel(LoadStreamId stream, v1::LoadModelRequest request) {
  const bool posted = loop_.TryPost([this, stream, request = std::move(request)] {
    if (shutting_down_) return admin_.End(stream, Busy());
    models_.Load(stream, request);
  });
  if (!posted) admin_.End(stream, Busy());
}

void Coordinator::OnUnloadModel(const std::string& name,
                                absl::AnyInvocable<void(absl::Status)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool posted = loop_.TryPost([this, name, shared] {
    models_.Unload(name, [shared](absl::Status status) { (*shared)(status); });
  });
  if (!posted) (*shared)(Busy());
}

// After every event: carry out what the cores decided until nothing is left, then set the timer.
void Coordinator::Pump() {
  while (CarryOutMembership() || sessions_.CarryOut() || models_.CarryOut()) {
  }
  const bool ready = models_.AnyReady() && !shutting_down_;
  if (ready != ready_told_ && server_ != nullptr) {
    server_->SetReady(ready);
    ready_told_ = ready;
  }
  if (timer_ != nullptr) {
    timer_->WakeAt(std::min({membership_.NextWake(), models_.NextWake(), sessions_.NextWake()}));
  }
  if (shutting_down_ && sessions_.idle()) {
    absl::MutexLock lock(&idle_mu_);
    idle_ = true;
  }
}

bool Coordinator::CarryOutMembership() {
  const MembershipActions actions = membership_.TakeActions();
  if (actions.empty()) return false;
  for (const MembershipActions::Lost& action : actions.lost) Lose(action);
  for (const MembershipActions::Refuse& action : actions.refuse) {
    Refuse(action.stream, action.status);
  }
  for (const MembershipActions::Welcome& action : actions.welcome) Welcome(action);
  for (const MembershipActions::Reply& action : actions.reply) {
    v1::CoordinatorMessage message;
    message.mutable_heartbeat()->set_number(action.number);
    join_.Send(action.stream, std::move(message));
  }
  return true;
}

void Coordinator::Lose(const MembershipActions::Lost& action) {
  LogWarning("node lost", {{"node", action.node},
                           {"incarnation", action.incarnation},
                           {"kind", FailureKindName(action.kind)},
                           {"reason", action.reason}});
  models_.OnNodeLost(action.node, action.incarnation, action.kind, action.reason);
  sessions_.OnNodeLost(action.node, action.incarnation, action.kind, action.reason);
  while (sessions_.CarryOut()) {  // Fenced before a successor is welcomed.
  }
  auto stream = stream_of_node_.find(action.node);
  if (stream != stream_of_node_.end()) {
    node_of_stream_.erase(stream->second);
    stream_of_node_.erase(stream);
  }
  nodes_.Disconnect(action.node);
}

void Coordinator::Welcome(const MembershipActions::Welcome& action) {
  const std::optional<NodeView> view = membership_.Find(action.node, clock_->Now());
  auto held = holds_.find(action.stream);
  std::optional<ShardReport> holds;
  if (held != holds_.end()) holds = std::move(held->second);
  holds_.erase(action.stream);
  if (!view.has_value()) return;
  LogInfo("node joined", {{"node", action.node},
                          {"incarnation", action.incarnation},
                          {"address", view->address},
                          {"device", view->capacity.device},
                          {"reconnect", action.reconnect}});
  auto old = stream_of_node_.find(action.node);
  if (old != stream_of_node_.end()) node_of_stream_.erase(old->second);
  stream_of_node_[action.node] = action.stream;
  node_of_stream_[action.stream] = action.node;
  if (!action.reconnect || old == stream_of_node_.end()) {
    nodes_.Connect(action.node, view->address);
  }
  v1::CoordinatorMessage message;
  v1::NodeWelcome& welcome = *message.mutable_welcome();
  welcome.set_protocol(action.protocol);
  welcome.set_incarnation(action.incarnation.value());
  welcome.set_term(term_.value());
  welcome.set_heartbeat_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  welcome.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  join_.Send(action.stream, std::move(message));
  store_.Run([node = action.node, address = view->address,
              term = term_](Store& store) { return store.RememberNode(term, node, address); },
             [node = action.node](const absl::Status& status) {
               if (!status.ok())
                 LogWarning("node not remembered", {{"node", node}, {"status", status}});
             });
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

ClusterView Coordinator::View() {
  ClusterView view{.term = term_,
                   .nodes = membership_.List(clock_->Now()),
                   .models = models_.List(),
                   .problems = models_.Problems(),
                   .sessions_running = static_cast<uint32_t>(sessions_.running_count())};
  if (view.nodes.empty()) {
    view.problems.push_back("no node has joined; start shardline-node on each machine");
  }
  if (view.models.empty() && view.problems.empty()) {
    view.problems.push_back("no model is loaded; shardctl model load PATH");
  }
  return view;
}

}  // namespace shardline
