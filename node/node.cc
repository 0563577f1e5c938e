#include "node/node.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "kernels/thread_pool.h"
#include "node/capacity.h"
#include "node/transport/link_handshake.h"
#include "node/transport/stage_conversion.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

// Events that may wait while one runs; those that must not be lost come on top.
constexpr size_t kEventsWaitingMax = 4096;
constexpr size_t kLoadsWaitingMax = 64;
constexpr int32_t kChunkTokensMax = 4096;  // As StageOptions::bundle_tokens_max.
constexpr absl::Duration kDrainLimit = absl::Seconds(1);
constexpr absl::Duration kHangUpLimit = absl::Seconds(10);
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

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
                                                  const Clock* clock) {
  if (options.threads == 0) options.threads = UsableCpuCount();
  std::unique_ptr<Node> node(new Node(std::move(options), loader, clock));
  SL_RETURN_IF_ERROR(node->Listen());
  node->Join();
  return node;
}

Node::Node(NodeOptions options, ShardLoader* loader, const Clock* clock)
    : options_(std::move(options)),
      loader_(loader),
      clock_(clock),
      boot_id_(RandomBootId()),
      strand_(kEventsWaitingMax),
      loads_(kLoadsWaitingMax) {}

absl::Status Node::Listen() {
  timer_ = std::make_unique<WakeTimer>(clock_, [this] { strand_.Post([this] { OnWake(); }); });
  loading_thread_ = std::thread([this] { RunLoads(); });
  SL_ASSIGN_OR_RETURN(server_, NodeServer::Start(options_.listen, MakeShardEvents(),
                                                 MakeHeadEvents(), LinkLimits{}, LinkWindow{}));
  return absl::OkStatus();
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
  }
  coordinator_ = std::make_unique<CoordinatorClient>(
      CoordinatorClientOptions{.address = options_.coordinator}, MakeCoordinatorEvents());
  absl::MutexLock lock(&mu_);
  reports_to_ = coordinator_.get();
}

Node::~Node() {
  {
    absl::MutexLock lock(&mu_);
    reports_to_ = nullptr;
  }
  coordinator_.reset();
  loading_serial_ = 0;
  strand_.Post([this] {
    wanted_.reset();
    DropShard(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.node_id},
                          "the node is shutting down"));
  });
  if (server_ != nullptr) server_->Shutdown(kDrainLimit);
  loads_.Close();
  if (loading_thread_.joinable()) loading_thread_.join();
  // Cancelled calls end by themselves; the limit is for a fault of ours.
  SL_CHECK(calls_.AwaitZero(kHangUpLimit));
  timer_.reset();
  strand_.Close();
}

ShardEvents Node::MakeShardEvents() {
  ShardEvents events;
  events.identity = [this] {
    absl::MutexLock lock(&mu_);
    return facts_.identity;
  };
  events.on_open = [this](OpenAttempt open, std::function<void(absl::StatusOr<OpenReply>)> reply) {
    const bool posted =
        strand_.TryPost([this, open = std::move(open), reply] { OnOpen(open, reply); });
    if (!posted) reply(Busy());
  };
  events.on_fence = [this](const FenceOrder& order, std::function<void(FenceReply)> reply) {
    // A fence must not be refused: it is what frees a node that is too busy.
    const bool posted = strand_.Post([this, order, reply] { OnFence(order, reply); });
    if (!posted) reply(FenceReply{});
  };
  events.on_link_opened = [this](std::shared_ptr<LinkHandle> link) {
    strand_.Post([this, link = std::move(link)]() mutable { OnLinkOpened(std::move(link)); });
  };
  // Bounded by the credits of the links.
  events.on_bundle = [this](std::shared_ptr<LinkHandle> link, uint64_t sequence,
                            StageBundle bundle) {
    strand_.Post([this, link = std::move(link), sequence, bundle = std::move(bundle)]() mutable {
      OnBundle(link, sequence, std::move(bundle));
    });
  };
  events.on_link_closed = [this](std::shared_ptr<LinkHandle> link) {
    strand_.Post([this, link = std::move(link)] { OnLinkClosed(link); });
  };
  return events;
}

HeadEvents Node::MakeHeadEvents() {
  HeadEvents events;
  events.on_run = [this](RunRequest request, std::shared_ptr<RunStream> stream) {
    const bool posted = strand_.TryPost([this, request = std::move(request), stream]() mutable {
      OnRun(std::move(request), std::move(stream));
    });
    if (!posted) stream->Fail(Busy());
  };
  events.on_run_closed = [this](AttemptKey key, std::shared_ptr<RunStream> stream) {
    strand_.Post([this, key, stream = std::move(stream)] { OnRunClosed(key, stream); });
  };
  return events;
}

CoordinatorEvents Node::MakeCoordinatorEvents() {
  CoordinatorEvents events;
  events.hello = [this] { return Hello(); };
  events.heartbeat = [this] { return Beat(); };
  events.on_welcome = [this](const v1::NodeWelcome& welcome) {
    LogInfo("joined", {{"coordinator", options_.coordinator},
                       {"incarnation", welcome.incarnation()},
                       {"term", welcome.term()}});
    const Incarnation incarnation(welcome.incarnation());
    strand_.Post([this, incarnation] { OnWelcome(incarnation); });
    server_->SetServing(kNodeService, true);
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
    strand_.Post([this, order = std::move(order)]() mutable { OnLoad(std::move(order)); });
  };
  events.on_unload = [this](const v1::UnloadShard& unload) {
    const PlanEpoch plan_epoch(unload.plan_epoch());
    strand_.Post([this, plan_epoch] { OnUnload(plan_epoch); });
  };
  events.on_lost = [this](const absl::Status&) { server_->SetServing(kNodeService, false); };
  return events;
}

v1::NodeHello Node::Hello() const {
  v1::NodeHello hello;
  hello.mutable_protocol()->set_min(kProtocolVersionMin);
  hello.mutable_protocol()->set_max(kProtocolVersionMax);
  hello.set_node_id(options_.node_id.value());
  hello.set_version(std::string(kVersion));
  hello.set_address(options_.advertise.empty() ? address() : options_.advertise);
  hello.set_boot_id(boot_id_);
  absl::MutexLock lock(&mu_);
  *hello.mutable_capacity() = capacity_;
  hello.set_incarnation(facts_.incarnation.value());
  *hello.mutable_shard() = facts_.shard;
  return hello;
}

v1::Heartbeat Node::Beat() const {
  v1::Heartbeat beat;
  beat.set_attempts_open(attempts_open_.load(std::memory_order_relaxed));
  beat.set_kv_pages_total(kv_pages_total_.load(std::memory_order_relaxed));
  beat.set_kv_pages_free(kv_pages_free_.load(std::memory_order_relaxed));
  absl::MutexLock lock(&mu_);
  beat.set_memory_used_bytes(facts_.memory_used_bytes);
  if (facts_.executor != nullptr) {
    const ExecutorProgress progress = facts_.executor->progress();
    beat.set_jobs_started(progress.jobs_started);
    beat.set_jobs_done(progress.jobs_done);
  }
  return beat;
}

void Node::OnOpen(const OpenAttempt& open,
                  const std::function<void(absl::StatusOr<OpenReply>)>& reply) {
  if (shard_ == nullptr) {
    reply(NoShard());
    return;
  }
  reply(shard_->stage->Open(open, clock_->Now()));
  Drain();
}

void Node::OnFence(const FenceOrder& order, const std::function<void(FenceReply)>& reply) {
  if (shard_ == nullptr) {
    reply(FenceReply{});
    return;
  }
  const Instant now = clock_->Now();
  const uint64_t ignored = shard_->stage->stats().fences_ignored;
  const FenceReply answer = shard_->stage->Fence(order.session, order.epoch, order.term, now);
  const bool heard = shard_->stage->stats().fences_ignored == ignored;
  if (heard && shard_->head != nullptr) {
    shard_->head->OnFence(order.session, order.epoch, order.reason, now);
  }
  Drain();
  reply(answer);
}

void Node::OnLinkOpened(std::shared_ptr<LinkHandle> link) {
  LogInfo("link accepted", {{"peer", link->peer().node}});
  // The hello was judged by what the node was then.
  if (shard_ == nullptr) {
    link->Close(NoShard());
    return;
  }
  const StagePeer peer = link->peer();
  links_in_[peer] = std::move(link);
}

void Node::OnBundle(const std::shared_ptr<LinkHandle>& link, uint64_t sequence,
                    StageBundle bundle) {
  if (shard_ == nullptr) return;
  shard_->stage->OnBundle(link->peer(), std::move(bundle), clock_->Now());
  Drain();
  link->Ack(sequence);
}

void Node::OnLinkClosed(const std::shared_ptr<LinkHandle>& link) {
  const auto it = links_in_.find(link->peer());
  if (it != links_in_.end() && it->second == link) links_in_.erase(it);
}

void Node::OnRun(RunRequest request, std::shared_ptr<RunStream> stream) {
  if (shard_ == nullptr || shard_->head == nullptr) {
    stream->Fail(NoShard());
    return;
  }
  const AttemptKey key = request.run.key;
  const absl::StatusOr<const OpenAttempt*> open =
      shard_->stage->CheckRun(key, request.term, request.incarnation);
  if (!open.ok()) {
    stream->Fail(open.status());
    return;
  }
  request.run.route = (*open)->route;
  request.run.tokens_max = (*open)->tokens_max;
  const absl::Status status = shard_->head->OnRun(std::move(request.run), clock_->Now());
  if (!status.ok()) {
    stream->Fail(status);
    return;
  }
  runs_[key] = std::move(stream);
  Drain();
}

void Node::OnRunClosed(const AttemptKey& key, const std::shared_ptr<RunStream>& stream) {
  const auto it = runs_.find(key);
  if (it == runs_.end() || it->second != stream) return;
  runs_.erase(it);
  if (shard_ == nullptr || shard_->head == nullptr) return;
  shard_->head->OnCancel(key, clock_->Now());
  Drain();
}

void Node::OnComputeDone(uint64_t serial, JobKind kind, ComputeDone done) {
  if (shard_ == nullptr || shard_->serial != serial) return;
  if (kind == JobKind::kLayers) {
    shard_->stage->OnComputeDone(std::move(done), clock_->Now());
  } else {
    shard_->head->OnComputeDone(std::move(done), clock_->Now());
  }
  Drain();
}

void Node::OnWake() {
  if (shard_ == nullptr) return;
  const Instant now = clock_->Now();
  shard_->stage->OnTick(now);
  if (shard_->head != nullptr) shard_->head->OnTick(now);
  Drain();
}

void Node::OnWelcome(Incarnation incarnation) {
  if (incarnation == incarnation_) return;
  // A new life: whatever the old one held is fenced off by its number, so it is of no use.
  const bool had_shard = wanted_.has_value();
  wanted_.reset();
  DropShard(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.node_id},
                        "the coordinator has started this node anew"));
  incarnation_ = incarnation;
  UpdateFacts([&](Facts& facts) { facts.incarnation = incarnation; });
  if (had_shard) ReportShard({});
}

void Node::OnLoad(ShardOrder order) {
  if (wanted_ == order) return;  // A repeat: the report is on its way, or was in the hello.
  if (wanted_ && order.plan_epoch < wanted_->plan_epoch) return;
  LogInfo("shard ordered", {{"model", order.model_id},
                            {"layers", order.layers.ToString()},
                            {"plan_epoch", order.plan_epoch}});
  wanted_ = order;
  DropShard(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.node_id},
                        "another shard is being loaded"));
  const uint64_t serial = serial_;
  loading_serial_ = serial;
  ReportShard(ReportOf(order, v1::SHARD_STATE_LOADING));
  const absl::Status sane = CheckOrder(order);
  if (!sane.ok()) {
    OnLoaded(order, sane);
    return;
  }
  const bool queued = loads_.TryPost([this, order, serial] {
    if (loading_serial_ == serial) LoadShard(order, serial);
  });
  if (!queued) OnLoaded(order, Busy());
}

void Node::OnUnload(PlanEpoch plan_epoch) {
  if (!wanted_ || wanted_->plan_epoch != plan_epoch) return;
  LogInfo("shard unloaded", {{"plan_epoch", plan_epoch}});
  wanted_.reset();
  DropShard(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.node_id},
                        "the shard was unloaded"));
  // Said when the memory is free: the loading thread works in order.
  if (!loads_.TryPost([this] { ReportShard({}); })) ReportShard({});
}

void Node::OnLoaded(const ShardOrder& order, absl::StatusOr<LoadedShard> loaded) {
  if (wanted_ != order) return;
  if (!loaded.ok()) {
    LogError("shard failed", {{"reason", loaded.status()}});
    v1::ShardReport report = ReportOf(order, v1::SHARD_STATE_FAILED);
    *report.mutable_failure() = ToProto(loaded.status());
    wanted_.reset();
    ReportShard(std::move(report));
    return;
  }
  auto shard = std::make_unique<Shard>();
  shard->order = order;
  shard->serial = serial_;
  shard->executor = std::move(loaded->executor);
  const Recipe recipe = {.model_id = order.model_id,
                         .numerics_id = loaded->numerics_id,
                         .plan_epoch = order.plan_epoch};
  shard->identity = {.node = options_.node_id,
                     .incarnation = incarnation_,
                     .recipe = recipe,
                     .hidden_dim = loaded->hidden_dim};
  shard->stage =
      std::make_unique<StageCore>(StageOptions{.node = options_.node_id,
                                               .incarnation = incarnation_,
                                               .recipe = recipe,
                                               .layers = order.layers,
                                               .layers_total = loaded->layers_total,
                                               .is_head = order.is_head,
                                               .hidden_dim = loaded->hidden_dim,
                                               .pages_total = order.kv_pages,
                                               .context_tokens_max = loaded->context_tokens_max});
  if (order.is_head) {
    shard->head =
        std::make_unique<HeadCore>(HeadOptions{.node = options_.node_id,
                                               .layers = order.layers,
                                               .vocab_size = loaded->vocab_size,
                                               .hidden_dim = loaded->hidden_dim,
                                               .context_tokens_max = loaded->context_tokens_max,
                                               .chunk_tokens_max = order.chunk_tokens_max});
  }
  shard_ = std::move(shard);
  LogInfo("shard loaded", {{"model", order.model_id},
                           {"layers", order.layers.ToString()},
                           {"numerics", loaded->numerics_id},
                           {"memory_bytes", loaded->memory_bytes}});
  UpdateFacts([&](Facts& facts) {
    facts.identity = shard_->identity;
    facts.memory_used_bytes = loaded->memory_bytes;
    facts.executor = shard_->executor;
  });
  v1::ShardReport report = ReportOf(order, v1::SHARD_STATE_LOADED);
  report.set_numerics_id(loaded->numerics_id.value());
  report.set_kv_pages_total(static_cast<uint32_t>(order.kv_pages));
  ReportShard(std::move(report));
  Drain();
}

void Node::DropShard(const absl::Status& reason) {
  ++serial_;
  loading_serial_ = 0;
  UpdateFacts([](Facts& facts) {
    facts.identity.reset();
    facts.memory_used_bytes = 0;
    facts.executor.reset();
  });
  if (shard_ != nullptr) {
    const Instant now = clock_->Now();
    if (shard_->head != nullptr) shard_->head->Halt(reason, now);
    shard_->stage->CloseAll(now);
    Drain();
  }
  for (const auto& [peer, link] : links_in_) link->Close(reason);
  links_in_.clear();
  links_out_.clear();
  for (const auto& [key, stream] : runs_) stream->Fail(reason);
  runs_.clear();
  attempts_open_ = 0;
  kv_pages_total_ = 0;
  kv_pages_free_ = 0;
  if (shard_ == nullptr) return;
  // The device may be at work: the loading thread waits for it.
  std::shared_ptr<Shard> old = std::move(shard_);
  auto free = [old]() mutable {
    old->executor->Shutdown();
    old.reset();
  };
  const bool queued = loads_.TryPost(std::move(free));
  if (!queued) LogError("shard kept: the loading thread is behind");
}

void Node::Drain() {
  while (true) {
    StageActions stage = shard_->stage->TakeActions();
    HeadActions head;
    if (shard_->head != nullptr) head = shard_->head->TakeActions();
    if (stage.empty() && head.empty()) break;
    CarryOut(std::move(stage));
    CarryOut(std::move(head));
  }
  const StageCore& stage = *shard_->stage;
  attempts_open_.store(static_cast<uint32_t>(stage.attempts_open()), std::memory_order_relaxed);
  kv_pages_total_.store(static_cast<uint32_t>(stage.kv().pages_total()), std::memory_order_relaxed);
  kv_pages_free_.store(static_cast<uint32_t>(stage.kv().pages_free()), std::memory_order_relaxed);
  Instant wake = stage.NextWake();
  if (shard_->head != nullptr) wake = std::min(wake, shard_->head->NextWake());
  timer_->Set(wake);
}

void Node::CarryOut(StageActions actions) {
  const Instant now = clock_->Now();
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (const StepComputed& step : actions.computed) {
    shard_->head->OnLayersComputed(step.key, step.compute_time, now);
  }
  for (Forward& forward : actions.forwards) Send(std::move(forward));
  for (StageBundle& bundle : actions.returns) shard_->head->OnReturn(std::move(bundle), now);
  for (const Refusal& refusal : actions.refusals) SendRefusal(refusal);
}

void Node::CarryOut(HeadActions actions) {
  const Instant now = clock_->Now();
  for (ComputeJob& job : actions.jobs) Submit(std::move(job));
  for (StageBundle& step : actions.steps) shard_->stage->OnBundle({}, std::move(step), now);
  for (const TokenOut& token : actions.tokens) {
    const auto it = runs_.find(token.key);
    if (it != runs_.end()) it->second->SendToken(token);
  }
  for (const AttemptEnd& end : actions.ends) {
    const auto it = runs_.find(end.key);
    if (it == runs_.end()) continue;
    it->second->End(end);
    runs_.erase(it);
  }
}

void Node::Submit(ComputeJob job) {
  const uint64_t serial = shard_->serial;
  const JobKind kind = job.kind;
  const uint64_t id = job.id;
  auto post = [this, serial, kind](ComputeDone done) {
    strand_.Post([this, serial, kind, done = std::move(done)]() mutable {
      OnComputeDone(serial, kind, std::move(done));
    });
  };
  const absl::Status status = shard_->executor->Submit(std::move(job), post);
  if (status.ok()) return;
  ComputeDone refused;
  refused.id = id;
  refused.status = status;
  post(std::move(refused));
}

void Node::Send(Forward forward) {
  std::vector<StepKey> keys;
  keys.reserve(forward.bundle.rows.size());
  for (const BundleRow& row : forward.bundle.rows) keys.push_back(row.key);
  const absl::Status status = LinkTo(forward.to).Send(std::move(forward.bundle));
  if (status.ok()) return;
  for (const StepKey& key : keys) {
    shard_->stage->OnRowFailure(forward.to.peer(), {.key = key, .status = status}, clock_->Now());
  }
}

void Node::SendRefusal(const Refusal& refusal) {
  if (refusal.to.is_own_head()) {
    if (shard_->head != nullptr) shard_->head->OnRowFailure(refusal.failure, clock_->Now());
    return;
  }
  const auto it = links_in_.find(refusal.to);
  // Without a link the peer has noticed by itself that its rows are lost.
  if (it != links_in_.end()) it->second->SendRowFailure(refusal.failure);
}

LinkClient& Node::LinkTo(const RouteStage& stage) {
  const StagePeer peer = stage.peer();
  std::unique_ptr<LinkClient>& link = links_out_[peer];
  if (link != nullptr) return *link;
  const uint64_t serial = shard_->serial;
  LinkClientEvents events;
  events.on_row_failure = [this, serial, peer](RowFailure failure) {
    strand_.Post([this, serial, peer, failure = std::move(failure)]() mutable {
      if (shard_ == nullptr || shard_->serial != serial) return;
      shard_->stage->OnRowFailure(peer, std::move(failure), clock_->Now());
      Drain();
    });
  };
  events.on_lost = [this, serial, peer](const absl::Status&) {
    strand_.Post([this, serial, peer] {
      if (shard_ == nullptr || shard_->serial != serial) return;
      shard_->stage->OnLinkLost(peer, clock_->Now());
      Drain();
    });
  };
  link = std::make_unique<LinkClient>(LinkClientOptions{.peer = peer,
                                                        .address = stage.address,
                                                        .hello = MakeHello(shard_->identity, peer),
                                                        .hidden_dim = shard_->identity.hidden_dim},
                                      std::move(events), clock_, &calls_);
  return *link;
}

void Node::RunLoads() {
  while (std::optional<std::function<void()>> task = loads_.Take()) (*task)();
}

void Node::LoadShard(const ShardOrder& order, uint64_t serial) {
  Instant reported;
  const auto progress = [&](uint64_t bytes_done, uint64_t bytes_total) {
    if (loading_serial_ != serial) return false;
    const Instant now = clock_->Now();
    if (now - reported < kProgressInterval) return true;
    reported = now;
    v1::ShardReport report = ReportOf(order, v1::SHARD_STATE_LOADING);
    report.set_bytes_done(bytes_done);
    report.set_bytes_total(bytes_total);
    strand_.Post([this, serial, report = std::move(report)] {
      if (serial_ == serial) ReportShard(report);
    });
    return true;
  };
  absl::StatusOr<LoadedShard> loaded = loader_->Load(order, progress);
  strand_.Post([this, serial, order, loaded = std::move(loaded)]() mutable {
    if (serial_ == serial) OnLoaded(order, std::move(loaded));
  });
}

void Node::UpdateFacts(const std::function<void(Facts&)>& change) {
  absl::MutexLock lock(&mu_);
  change(facts_);
}

void Node::ReportShard(v1::ShardReport report) {
  absl::MutexLock lock(&mu_);
  facts_.shard = report;
  if (reports_to_ != nullptr) reports_to_->Report(std::move(report));
}

v1::ShardReport Node::ReportOf(const ShardOrder& order, v1::ShardState state) {
  v1::ShardReport report;
  report.set_plan_epoch(order.plan_epoch.value());
  report.set_state(state);
  *report.mutable_layers() = ToProto(order.layers);
  report.set_model_id(order.model_id.value());
  return report;
}

}  // namespace shardline
