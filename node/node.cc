#include "node/node.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/thread_pool.h"
#include "node/capacity.h"
#include "node/stage_figures.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

// Events that may wait while one runs; those that must not be lost come on top.
constexpr size_t kEventsWaitingMax = 4096;
constexpr int32_t kChunkTokensMax = 4096;  // As StageOptions::bundle_tokens_max.
constexpr absl::Duration kDrainLimit = absl::Seconds(1);
constexpr absl::Duration kHangUpLimit = absl::Seconds(10);
// For sessions to open elsewhere and fences to come, at the end of a drain.
constexpr absl::Duration kMoveTime = absl::Seconds(2);
// The first answer may be to a beat from before.
constexpr int kAnswersToLeave = 2;

std::string RandomBootId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

absl::Status NoShard() {
  return MakeFailure(FailureKind::kWorkerDeath, "this node holds no shard");
}

absl::Status Busy() { return MakeFailure(FailureKind::kOverloaded, "the node's queue is full"); }

// The numbers of an order that the cores build on.
absl::Status CheckOrder(const ShardOrder& order) {
  const auto invalid = [](const std::string& what) {
    return MakeFailure(FailureKind::kInvalidRequest, what);
  };
  if (order.layers.empty()) return invalid("layers: none ordered");
  if (order.is_head != (order.layers.begin == 0)) return invalid("is_head: the head has layer 0");
  if (order.kv_pages < 1) return invalid(absl::StrCat("kv_pages: ", order.kv_pages));
  if (order.context_tokens_max < 0) {
    return invalid(absl::StrCat("context_tokens_max: ", order.context_tokens_max));
  }
  if (order.chunk_tokens_max < 1 || order.chunk_tokens_max > kChunkTokensMax) {
    return invalid(
        absl::StrCat("chunk_tokens_max: ", order.chunk_tokens_max, "; 1 to ", kChunkTokensMax));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Start(NodeOptions options, ShardLoader* loader,
                                                  const Clock* clock, NodeEvents events) {
  if (options.threads == 0) options.threads = UsableCpuCount();
  SL_ASSIGN_OR_RETURN(ObeyedTerm obeyed, ObeyedTerm::Open(options.data_dir, options.node_id));
  std::unique_ptr<Node> node(
      new Node(std::move(options), loader, clock, std::move(events), std::move(obeyed)));
  SL_RETURN_IF_ERROR(node->Listen());
  SL_RETURN_IF_ERROR(node->ServeMetrics());
  node->Join();
  return node;
}

Node::Node(NodeOptions options, ShardLoader* loader, const Clock* clock, NodeEvents events,
           ObeyedTerm obeyed)
    : options_(std::move(options)),
      loader_(loader),
      clock_(clock),
      events_(std::move(events)),
      boot_id_(RandomBootId()),
      obeyed_(std::move(obeyed)),
      strand_(kEventsWaitingMax),
      courier_(std::make_unique<Courier>(&strand_, kEventsWaitingMax)) {}

absl::Status Node::Listen() {
  timer_ = std::make_unique<WakeTimer>(clock_, [this] {
    strand_.Post([this] {
      if (loop_ != nullptr) loop_->OnWake();
    });
  });
  loading_ = std::make_unique<LoadingThread>(loader_, clock_, MakeLoadingEvents());
  StartPulses();
  SL_ASSIGN_OR_RETURN(server_, NodeServer::Start(options_.listen, MakeShardEvents(),
                                                 MakeHeadEvents(), LinkLimits{}, LinkWindow{}));
  return absl::OkStatus();
}

void Node::StartPulses() {
  pulse_host_ = std::make_unique<PulseHost>(
      PulseOptions{},
      PulseHostEvents{.self = [this] { return Self(); }, .progress = [this] { return Progress(); }},
      clock_);
  PulseClientEvents events;
  events.self = [this] { return Self(); };
  events.progress = [this] { return Progress(); };
  events.on_lost = [this](const StagePeer& peer, const absl::Status& reason) {
    ToStrand([this, peer, reason] {
      if (loop_ != nullptr) loop_->OnPeerLost(peer, reason);
    });
  };
  events.on_recovered = [this](const StagePeer& peer) {
    ToStrand([this, peer] {
      if (loop_ != nullptr) loop_->OnPeerRecovered(peer);
    });
  };
  pulses_ = std::make_unique<PulseClient>(PulseOptions{}, std::move(events), clock_, &calls_);
}

void Node::Join() {
  const MeasuredSpeed speed = MeasureSpeed(options_.threads);
  {
    absl::MutexLock lock(&mu_);
    capacity_.set_memory_bytes(options_.memory_bytes);
    capacity_.set_threads(static_cast<uint32_t>(options_.threads));
    capacity_.set_read_bytes_per_s(speed.read_bytes_per_s);
    capacity_.set_int8_ops_per_s(speed.int8_ops_per_s);
    capacity_.set_backend("cpu");
    capacity_.set_device(absl::StrCat("cpu x", options_.threads));
    capacity_.set_machine(options_.machine.empty() ? MachineId() : options_.machine);
    for (const int cpu : UsableCpus()) capacity_.add_cpus(static_cast<uint32_t>(cpu));
  }
  coordinator_ = std::make_unique<CoordinatorClient>(
      CoordinatorClientOptions{.address = options_.coordinator}, MakeCoordinatorEvents());
  absl::MutexLock lock(&mu_);
  reports_to_ = coordinator_.get();
}

Node::~Node() {
  metrics_.reset();
  {
    absl::MutexLock lock(&mu_);
    reports_to_ = nullptr;
  }
  coordinator_.reset();
  absl::Notification dropped;
  strand_.Post([&] {
    wanted_.reset();
    DropShard("the node is shutting down");
    dropped.Notify();
  });
  dropped.WaitForNotification();
  pulses_.reset();  // No life uses it any more, and it tells nobody from here on.
  courier_.reset();
  if (server_ != nullptr) server_->Shutdown(kDrainLimit);
  loading_.reset();
  // Cancelled calls end by themselves; the limit is for a fault of ours.
  SL_CHECK(calls_.AwaitZero(kHangUpLimit));
  timer_.reset();
  strand_.Close();
}

void Node::Drain(absl::Duration timeout) {
  const Instant deadline = clock_->Now() + timeout;
  const Instant move_by = clock_->Now() + std::max(timeout - kMoveTime, timeout / 2);
  // A run that is late goes elsewhere. What the coordinator has not moved in time ends here.
  gate_.Shut();
  strand_.Post([this, deadline] {
    if (loop_ == nullptr) return;
    loop_->DrainRuns(MakeFailure({.kind = FailureKind::kOverloaded, .node = options_.node_id},
                                 "the node is leaving"),
                     deadline);
  });
  bool empty = false;
  bool in_time = false;
  {
    absl::MutexLock lock(&mu_);
    leaving_ = Leaving{.move_by = move_by, .lost = !joined_};
    const auto left = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return leaving_->lost || (leaving_->heard >= kAnswersToLeave && leaving_->empty);
    };
    in_time = mu_.AwaitWithTimeout(absl::Condition(&left), timeout);
    empty = leaving_->empty;
  }
  // Runs that had come before the gate was shut, and nobody else knows of yet.
  in_time = gate_.AwaitEmpty(std::max(deadline - clock_->Now(), absl::ZeroDuration())) && in_time;
  LogInfo("drained", {{"empty", empty}, {"in_time", in_time}});
}

void Node::NoteHeard(bool any_live) {
  absl::MutexLock lock(&mu_);
  joined_ = true;
  if (!leaving_) return;
  ++leaving_->heard;
  leaving_->lost = false;
  leaving_->empty = !any_live && counters_.attempts_open.load(std::memory_order_relaxed) == 0;
}

// A beat never waits for the strand: see Courier.
void Node::ToStrand(Strand::Task task) {
  if (!courier_->Post(std::move(task))) LogError("an event is lost: the node stands still");
}

ShardEvents Node::MakeShardEvents() {
  ShardEvents events;
  events.authorise_open = [this](const v1::OpenRequest& request) { return AuthoriseOpen(request); };
  events.authorise_fence = [this](const v1::FenceRequest& request) {
    return AuthoriseFence(request);
  };
  events.on_pulse = [this] { return pulse_host_->Accept(); };
  events.identity = [this] {
    absl::MutexLock lock(&mu_);
    return facts_.identity;
  };
  events.on_open = [this](OpenAttempt open, std::function<void(absl::StatusOr<OpenReply>)> reply) {
    const bool posted = strand_.TryPost([this, open = std::move(open), reply] {
      if (loop_ == nullptr) return reply(NoShard());
      loop_->OnOpen(open, reply);
    });
    if (!posted) reply(Busy());
  };
  events.on_fence = [this](const FenceOrder& order, std::function<void(FenceReply)> reply) {
    // A fence must not be refused: it is what frees a node that is too busy.
    const bool posted = strand_.Post([this, order, reply] {
      if (loop_ == nullptr) return reply(FenceReply{});
      loop_->OnFence(order, reply);
    });
    if (!posted) reply(FenceReply{});
  };
  events.on_link_opened = [this](std::shared_ptr<LinkHandle> link) {
    strand_.Post([this, link = std::move(link)]() mutable {
      if (loop_ == nullptr) return link->Close(NoShard());
      loop_->OnLinkOpened(std::move(link));
    });
  };
  events.on_inspect = [this](std::shared_ptr<LinkHandle> link, std::vector<InspectRow> rows) {
    strand_.Post([this, link = std::move(link), rows = std::move(rows)] {
      if (loop_ != nullptr) loop_->OnInspect(link, rows);
    });
  };
  // Bounded by the credits of the links.
  events.on_bundle = [this](std::shared_ptr<LinkHandle> link, uint64_t sequence,
                            StageBundle bundle) {
    strand_.Post([this, link = std::move(link), sequence, bundle = std::move(bundle)]() mutable {
      if (loop_ != nullptr) loop_->OnBundle(link, sequence, std::move(bundle));
    });
  };
  // At most one a link.
  events.on_plan = [this](std::shared_ptr<LinkHandle> link) {
    strand_.Post([this, link = std::move(link)] {
      if (loop_ != nullptr) loop_->OnPlan(link);
    });
  };
  events.on_link_closed = [this](std::shared_ptr<LinkHandle> link) {
    strand_.Post([this, link = std::move(link)] {
      if (loop_ != nullptr) loop_->OnLinkClosed(link);
    });
  };
  return events;
}

HeadEvents Node::MakeHeadEvents() {
  HeadEvents events;
  events.gate = &gate_;
  events.on_run = [this](RunRequest request, std::shared_ptr<RunStream> stream) {
    const bool posted = strand_.TryPost([this, request = std::move(request), stream]() mutable {
      if (loop_ == nullptr) return stream->Fail(NoShard());
      loop_->OnRun(std::move(request), std::move(stream));
    });
    if (!posted) stream->Fail(Busy());
  };
  events.on_run_closed = [this](AttemptKey key, std::shared_ptr<RunStream> stream) {
    strand_.Post([this, key, stream = std::move(stream)] {
      if (loop_ != nullptr) loop_->OnRunClosed(key, stream);
    });
  };
  return events;
}

LoadingEvents Node::MakeLoadingEvents() {
  LoadingEvents events;
  events.on_progress = [this](uint64_t ticket, uint64_t bytes_done, uint64_t bytes_total) {
    strand_.Post([=, this] { OnProgress(ticket, bytes_done, bytes_total); });
  };
  events.on_loaded = [this](uint64_t ticket, absl::StatusOr<LoadedShard> loaded) {
    strand_.Post([this, ticket, loaded = std::move(loaded)]() mutable {
      OnLoaded(ticket, std::move(loaded));
    });
  };
  return events;
}

CoordinatorEvents Node::MakeCoordinatorEvents() {
  CoordinatorEvents events;
  events.hello = [this] { return Hello(); };
  events.heartbeat = [this] { return Beat(); };
  events.on_welcome = [this](const v1::NodeWelcome& welcome) { return TakeWelcome(welcome); };
  events.on_heartbeat = [this](const v1::HeartbeatReply& reply) {
    std::vector<AttemptKey> live;
    live.reserve(static_cast<size_t>(reply.live_size()));
    for (const v1::AttemptRef& attempt : reply.live()) {
      live.push_back({SessionId(attempt.session()), Epoch(attempt.epoch())});
    }
    NoteHeard(!live.empty());
    ToStrand([this, floor = SessionId(reply.floor()), as_of = reply.as_of(),
              live = std::move(live)] { OnHeard(floor, as_of, live); });
  };
  events.on_load = [this](const v1::LoadShard& load) {
    const absl::StatusOr<LayerRange> layers = FromProto(load.layers());
    ShardOrder order = {.plan_epoch = PlanEpoch(load.plan_epoch()),
                        .model_name = load.model_name(),
                        .model_path = load.model_path(),
                        .model_id = ModelId(load.model_id()),
                        .manifest = load.manifest(),
                        .layers = layers.value_or(LayerRange{}),
                        .is_head = load.is_head(),
                        .context_tokens_max = static_cast<int32_t>(load.context_tokens_max()),
                        .kv_pages = static_cast<int32_t>(load.kv_pages()),
                        .chunk_tokens_max = static_cast<int32_t>(load.chunk_tokens_max())};
    ToStrand([this, order = std::move(order)]() mutable { OnLoad(std::move(order)); });
  };
  events.on_unload = [this](const v1::UnloadShard& unload) {
    const PlanEpoch plan_epoch(unload.plan_epoch());
    ToStrand([this, plan_epoch] { OnUnload(plan_epoch); });
  };
  events.on_lost = [this](const absl::Status&) {
    server_->SetServing(kNodeService, false);
    absl::MutexLock lock(&mu_);
    joined_ = false;
    if (leaving_) leaving_->lost = true;
  };
  events.on_replaced = [this](const absl::Status& status) {
    ToStrand([this, status] { OnReplaced(status); });
    if (events_.on_replaced) events_.on_replaced(status);
  };
  return events;
}

absl::Status Node::TakeWelcome(const v1::NodeWelcome& welcome) {
  SL_ASSIGN_OR_RETURN(const CapabilityKey key, CapabilityKey::FromBytes(welcome.capability_key()));
  {
    absl::MutexLock lock(&obeyed_mu_);
    SL_RETURN_IF_ERROR(obeyed_.Obey(Term(welcome.term())));
  }
  LogInfo("joined", {{"coordinator", options_.coordinator},
                     {"incarnation", welcome.incarnation()},
                     {"term", welcome.term()}});
  const Incarnation incarnation(welcome.incarnation());
  ToStrand(
      [this, incarnation, key, term = Term(welcome.term()), floor = SessionId(welcome.floor())] {
        term_ = term;
        floor_ = std::max(floor_, floor);
        OnWelcome(incarnation, key);
      });
  server_->SetServing(kNodeService, true);
  return absl::OkStatus();
}

// One for another life is the core's to refuse, by its name.
absl::Status Node::AuthoriseOpen(const v1::OpenRequest& request) const {
  absl::MutexLock lock(&mu_);
  if (Incarnation(request.incarnation()) != facts_.incarnation) return absl::OkStatus();
  if (!facts_.key) return MakeFailure(FailureKind::kUnauthorised, "this node has not joined yet");
  return CheckCapability(*facts_.key, request);
}

absl::Status Node::AuthoriseFence(const v1::FenceRequest& request) const {
  absl::MutexLock lock(&mu_);
  if (!facts_.key) return MakeFailure(FailureKind::kUnauthorised, "this node has not joined yet");
  return CheckCapability(*facts_.key, request);
}

void Node::OnWelcome(Incarnation incarnation, const CapabilityKey& key) {
  if (incarnation == incarnation_) return;
  EndLife("the coordinator has started this node anew");
  incarnation_ = incarnation;
  UpdateFacts([&](Facts& facts) {
    facts.incarnation = incarnation;
    facts.key = key;
  });
  // The hello said what is held, and the coordinator counts on it.
  if (held_) StartLife();
}

void Node::OnHeard(SessionId floor, uint64_t as_of, const std::vector<AttemptKey>& live) {
  floor_ = std::max(floor_, floor);
  if (loop_ == nullptr) return;
  loop_->OnFloor(term_, floor_);
  // 0 covers no OPEN at all.
  if (as_of > 0) loop_->OnLiveAttempts(term_, as_of, live);
}

void Node::OnReplaced(const absl::Status& status) {
  LogError("another process has this node's id; ending", {{"reason", status}});
  EndLife("another process has this node's id");
}

void Node::OnLoad(ShardOrder order) {
  if (wanted_ == order) return;  // A repeat: the report is on its way, or was in the hello.
  if (wanted_ && order.plan_epoch < wanted_->plan_epoch) return;
  LogInfo("shard ordered", {{"model", order.model_id},
                            {"layers", order.layers.ToString()},
                            {"plan_epoch", order.plan_epoch}});
  if (wanted_ && SameShard(*wanted_, order)) return KeepShard(std::move(order));
  DropShard("another shard is being loaded");
  wanted_ = order;
  ReportShard(ReportOf(order, v1::SHARD_STATE_LOADING));
  const absl::Status sane = CheckOrder(order);
  if (!sane.ok()) return OnLoadFailed(sane);
  ticket_ = loading_->Load(std::move(order));
}

void Node::KeepShard(ShardOrder order) {
  LogInfo("shard kept", {{"layers", order.layers.ToString()}, {"plan_epoch", order.plan_epoch}});
  wanted_ = std::move(order);
  if (!held_) return ReportShard(ReportOf(*wanted_, v1::SHARD_STATE_LOADING));
  // Nobody is to blame, and the node is no suspect: only its KV is gone.
  EndLife(MakeFailure(FailureKind::kCacheMiss, "another plan is in force"));
  StartLife();
  ReportLoaded();
}

void Node::OnUnload(PlanEpoch plan_epoch) {
  if (!wanted_ || wanted_->plan_epoch != plan_epoch) return;
  LogInfo("shard unloaded", {{"plan_epoch", plan_epoch}});
  wanted_.reset();
  DropShard("the shard was unloaded");
  ReportShard({});
}

void Node::OnProgress(uint64_t ticket, uint64_t bytes_done, uint64_t bytes_total) {
  if (ticket != ticket_) return;
  v1::ShardReport report = ReportOf(*wanted_, v1::SHARD_STATE_LOADING);
  report.set_bytes_done(bytes_done);
  report.set_bytes_total(bytes_total);
  ReportShard(std::move(report));
}

void Node::OnLoaded(uint64_t ticket, absl::StatusOr<LoadedShard> loaded) {
  if (ticket != ticket_) {
    // Not wanted any more since it was posted; not freed here, as that takes long.
    if (loaded.ok()) loading_->Free(std::move(loaded->executor));
    return;
  }
  if (!loaded.ok()) return OnLoadFailed(loaded.status());
  ticket_ = 0;
  held_ = *std::move(loaded);
  LogInfo("shard loaded", {{"model", wanted_->model_id},
                           {"layers", wanted_->layers.ToString()},
                           {"numerics", held_->numerics_id},
                           {"memory_bytes", held_->memory_bytes},
                           {"step", held_->cost.step},
                           {"row", held_->cost.row}});
  UpdateFacts([&](Facts& facts) {
    facts.memory_used_bytes = held_->memory_bytes;
    facts.executor = held_->executor;
  });
  StartLife();
  ReportLoaded();
}

void Node::OnLoadFailed(const absl::Status& status) {
  LogError("shard failed", {{"reason", status}});
  v1::ShardReport report = ReportOf(*wanted_, v1::SHARD_STATE_FAILED);
  *report.mutable_failure() = ToProto(status);
  wanted_.reset();
  ticket_ = 0;
  ReportShard(std::move(report));
}

void Node::StartLife() {
  ShardSurroundings surroundings = {.clock = clock_,
                                    .strand = &strand_,
                                    .timer = timer_.get(),
                                    .calls = &calls_,
                                    .counters = &counters_,
                                    .floor = floor_,
                                    .drafts = options_.drafts};
  surroundings.on_peer_wanted = [this](const RouteStage& stage) {
    pulses_->Want(stage.peer(), stage.address);
  };
  surroundings.on_peer_dropped = [this](const StagePeer& peer) { pulses_->Drop(peer); };
  loop_ =
      std::make_shared<ShardLoop>(surroundings, options_.node_id, incarnation_, *wanted_, *held_);
  UpdateFacts([&](Facts& facts) { facts.identity = loop_->identity(); });
}

void Node::EndLife(const std::string& reason) {
  EndLife(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.node_id}, reason));
}

void Node::EndLife(const absl::Status& reason) {
  if (loop_ == nullptr) return;
  UpdateFacts([](Facts& facts) { facts.identity.reset(); });
  AddLife(past_);
  loop_->End(reason);
  loop_.reset();
}

void Node::DropShard(const std::string& reason) {
  loading_->Cancel();
  ticket_ = 0;
  EndLife(reason);
  UpdateFacts([](Facts& facts) {
    facts.memory_used_bytes = 0;
    facts.executor.reset();
  });
  if (!held_) return;
  loading_->Free(std::move(held_->executor));
  held_.reset();
}

void Node::UpdateFacts(const std::function<void(Facts&)>& change) {
  absl::MutexLock lock(&mu_);
  change(facts_);
}

}  // namespace shardline
