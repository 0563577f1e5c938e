#include "tests/sim/sim_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_coordinator.h"

namespace shardline::sim {
namespace {

constexpr SimTime kWelcomeTimeout = 2 * kSecond;
constexpr SimTime kJoinPauseMin = 50 * kMillisecond;
constexpr SimTime kJoinPauseMax = 1 * kSecond;

// Knows what the session will say, and is wrong now and then.
class Oracle final : public Proposer {
 public:
  Oracle(const RunAttempt& run, ReferenceModel& model)
      : prompt_(run.prompt.size()),
        seed_(run.key.session.value()),
        tokens_(model.Generate(run.prompt, run.sampling, run.new_tokens_max)) {}

  std::string_view name() const override { return "oracle"; }
  void Accept(std::span<const int32_t> tokens) override { read_ += tokens.size(); }
  std::vector<Draft> Propose(size_t count) const override {
    std::vector<Draft> drafts;
    for (size_t i = read_ - std::min(prompt_, read_); i < tokens_.size() && drafts.size() < count;
         ++i) {
      const bool is_wrong = Rng(seed_ * 1000 + read_ + i).Chance(200);
      drafts.push_back(
          {.token = is_wrong ? (tokens_[i] + 1) % kVocabSize : tokens_[i], .chance = 0.9F});
    }
    return drafts;
  }

 private:
  const size_t prompt_;
  const uint64_t seed_;
  const std::vector<int32_t> tokens_;
  size_t read_ = 0;
};

std::vector<std::unique_ptr<Proposer>> ProposersFor(const RunAttempt& run, ReferenceModel& model) {
  std::vector<std::unique_ptr<Proposer>> proposers;
  proposers.push_back(std::make_unique<Oracle>(run, model));
  return proposers;
}

}  // namespace

SimCluster::SimCluster(SimContext* sim) : context(sim), network(sim) {}

SimCluster::~SimCluster() = default;

namespace {

std::string Signature(uint64_t key, std::initializer_list<uint64_t> fields) {
  uint64_t hash = key;
  for (const uint64_t field : fields) hash = Rng(hash ^ field).Next();
  return std::string(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

}  // namespace

std::string OpenCapability(uint64_t key, const OpenAttempt& open) {
  return Signature(key,
                   {1, open.key.session.value(), open.key.epoch.value(), open.term.value(),
                    open.incarnation.value(), open.recipe.plan_epoch.value(), open.stage_index,
                    open.route.size(), static_cast<uint64_t>(open.tokens_max),
                    static_cast<uint64_t>(absl::ToInt64Nanoseconds(open.budget)), open.open_seq});
}

std::string FenceCapability(uint64_t key, const FenceOrder& order) {
  return Signature(key, {2, order.session.value(), order.epoch.value(), order.term.value(),
                         order.incarnation.value()});
}

SimNode* SimCluster::NodeNamed(const NodeId& id) const {
  for (const std::unique_ptr<SimNode>& node : nodes) {
    if (node->id() == id) return node.get();
  }
  return nullptr;
}

SimNode::SimNode(SimCluster* cluster, const SimNodeOptions& options)
    : SimProcess(cluster->context, options.number, options.rate_ppm),
      cluster_(cluster),
      options_(options) {}

void SimNode::Start() {
  BeginLife();
  boot_id_ = absl::StrCat("boot-", options_.number, "-", life());
  incarnation_ = Incarnation();
  key_ = 0;
  floor_ = SessionId();
  pulses_ = std::make_unique<PulseCore>(PulseOptions());
  hearing_ = std::make_unique<PulseHearing>(PulseOptions());
  join_pause_ = kJoinPauseMin;
  Join();
}

void SimNode::Kill(bool silent) {
  drains_ = false;
  EndLife(silent);
  if (stage_ != nullptr) context().checker->OnStageGone(*stage_);
  context().checker->OnNodeDied(number());
  wanted_.reset();
  held_ = false;
  ++load_ticket_;
  ++shard_life_;
  stage_.reset();
  head_.reset();
  device_.reset();
  links_out_.clear();
  links_in_.clear();
  newest_in_.clear();
  runs_.clear();
  pulses_.reset();
  hearing_.reset();
  pulse_streams_.clear();
  pulse_peers_.clear();
  join_ = nullptr;
  cluster_->network.OnDeath(*this);
}

void SimNode::OnWake() {
  pulses_->OnTick(Now());
  if (stage_ != nullptr) stage_->OnTick(Now());
  if (head_ != nullptr) head_->OnTick(Now());
  Drain();
}

void SimNode::Join() {
  joined_ = cluster_->coordinator();
  join_ = cluster_->network.Dial(this, joined_);
  welcomed_ = false;
  beat_number_ = 0;
  echo_ = 0;
  heard_ = context().queue.now();
  Stream* const stream = join_;
  cluster_->network.OnEnd(stream, 0, [this, stream] { OnJoinEnd(stream); });
  SayHello(stream);
  After(kWelcomeTimeout, [this, stream] {
    if (join_ != stream || welcomed_) return;
    cluster_->network.HangUp(stream, 0);
    OnJoinEnd(stream);
  });
}

void SimNode::SayHello(Stream* stream) {
  NodeHello hello{.protocol_min = kProtocolVersionMin,
                  .protocol_max = kProtocolVersionMax,
                  .node = options_.id,
                  .version = "sim",
                  .address = options_.id.value(),
                  .boot_id = boot_id_,
                  .incarnation = incarnation_,
                  .term_seen = obeyed_};
  std::optional<ShardReport> holds;
  if (wanted_) holds = ReportOf(*wanted_, held_ ? ShardState::kLoaded : ShardState::kLoading);
  SimCoordinator* const coordinator = joined_;
  cluster_->network.Send(stream, 0, [this, coordinator, stream, hello = std::move(hello), holds] {
    coordinator->OnNodeHello(this, stream, hello, holds);
  });
}

void SimNode::OnJoinEnd(Stream* stream) {
  if (join_ != stream) return;
  join_ = nullptr;
  if (welcomed_) join_pause_ = kJoinPauseMin;
  welcomed_ = false;
  After(context().rng.Between(join_pause_ / 2, join_pause_), [this] {
    if (join_ == nullptr) Join();
  });
  join_pause_ = std::min(2 * join_pause_, kJoinPauseMax);
}

void SimNode::BreakJoin() {
  if (alive() && join_ != nullptr) cluster_->network.Reset(join_);
}

void SimNode::AbandonJoin() {
  if (!alive() || join_ == nullptr) return;
  Stream* const stream = join_;
  cluster_->network.Abandon(stream, 0);
  OnJoinEnd(stream);
}

void SimNode::OnRefused(Stream* stream) {
  if (join_ != stream) return;
  cluster_->network.HangUp(stream, 0);
  OnJoinEnd(stream);
}

void SimNode::Beat(Stream* stream) {
  if (join_ != stream) return;
  if (context().queue.now() > heard_ + kLease) {
    cluster_->network.HangUp(stream, 0);
    OnJoinEnd(stream);
    return;
  }
  NodeBeat beat{.number = ++beat_number_, .echo = echo_};
  if (device_ != nullptr) {
    beat.jobs_started = device_->jobs_started();
    beat.jobs_done = device_->jobs_done();
  }
  if (stage_ != nullptr) {
    beat.attempts_open = static_cast<uint32_t>(stage_->attempts_open());
    beat.kv_pages_total = static_cast<uint32_t>(stage_->kv().pages_total());
    beat.kv_pages_free = static_cast<uint32_t>(stage_->kv().pages_free());
  }
  for (const SilentPeer& peer : pulses_->Silent(Now())) {
    beat.peers.push_back({.peer = peer.peer, .silent = peer.silent});
  }
  for (const SilentPeer& peer : hearing_->Silent(Now())) {
    beat.peers.push_back({.peer = peer.peer, .silent = peer.silent});
  }
  SimCoordinator* const coordinator = joined_;
  cluster_->network.Send(stream, 0,
                         [coordinator, stream, beat] { coordinator->OnNodeBeat(stream, beat); });
  After(kHeartbeat, [this, stream] { Beat(stream); });
}

void SimNode::OnBeatReply(const BeatReplyWords& reply) {
  heard_ = context().queue.now();
  echo_ = reply.number;
  floor_ = std::max(floor_, reply.floor);
  if (stage_ == nullptr) return;
  stage_->OnFloor(reply.term, reply.floor);
  const std::vector<AttemptKey> over =
      stage_->OnLiveAttempts(reply.term, reply.as_of, reply.live, Now());
  for (const AttemptKey& key : over) {
    context().checker->OnFenceObeyed(*this, key.session, key.epoch, FailureKind::kNone);
    if (head_ != nullptr) head_->OnFence(key.session, key.epoch, FailureKind::kNone, Now());
  }
  Drain();
}

void SimNode::OnWelcome(const WelcomeWords& welcome) {
  context().trace.Add(TraceKind::kWelcome, number(), welcome.incarnation.value());
  if (welcome.term < obeyed_) {
    // Its ledger is an old one.
    Stream* const stream = join_;
    cluster_->network.HangUp(stream, 0);
    OnJoinEnd(stream);
    return;
  }
  obeyed_ = welcome.term;
  heard_ = context().queue.now();
  const bool first = !std::exchange(welcomed_, true);
  key_ = welcome.key;
  floor_ = std::max(floor_, welcome.floor);
  if (welcome.incarnation != incarnation_) {
    EndLifeOfShard("the coordinator has started this node anew");
    incarnation_ = welcome.incarnation;
    if (held_) StartLife();
  }
  if (first) Beat(join_);
  if (report_waits_ && wanted_) Report(held_ ? ShardState::kLoaded : ShardState::kLoading);
}

ShardReport SimNode::ReportOf(const ShardOrder& order, ShardState state) const {
  ShardReport report{.plan = order.plan, .state = state, .bytes_total = 100};
  if (state == ShardState::kLoaded) {
    report.bytes_done = 100;
    report.numerics_id = NumericsId("hash-1");
    report.kv_pages = static_cast<uint32_t>(order.kv_pages);
  }
  return report;
}

void SimNode::Report(ShardState state) {
  if (!wanted_) return;
  report_waits_ = join_ == nullptr || !welcomed_;
  if (report_waits_) return;
  SimCoordinator* const coordinator = joined_;
  Stream* const stream = join_;
  cluster_->network.Send(stream, 0, [coordinator, stream, report = ReportOf(*wanted_, state)] {
    coordinator->OnNodeReport(stream, report);
  });
}

void SimNode::OnLoad(const ShardOrder& order) {
  context().trace.Add(TraceKind::kLoad, number(), order.plan.value());
  if (wanted_ == order) return;
  if (wanted_ && order.plan < wanted_->plan) return;
  if (wanted_ && held_ && wanted_->layers == order.layers && wanted_->kv_pages == order.kv_pages) {
    wanted_ = order;
    EndLifeOfShard("another plan is in force");
    StartLife();
    Report(ShardState::kLoaded);
    return;
  }
  DropShard("another shard is being loaded");
  wanted_ = order;
  Report(ShardState::kLoading);
  const uint64_t ticket = ++load_ticket_;
  After(context().rng.Between(5 * kMillisecond, 50 * kMillisecond), [this, order, ticket] {
    if (ticket == load_ticket_) OnLoaded(order);
  });
}

void SimNode::OnLoaded(const ShardOrder& order) {
  context().trace.Add(TraceKind::kLoaded, number(), order.plan.value());
  held_ = true;
  device_ = std::make_unique<SimDevice>(this, order.layers, order.kv_pages);
  StartLife();
  Report(ShardState::kLoaded);
}

void SimNode::OnUnload(PlanEpoch plan) {
  if (!wanted_ || wanted_->plan != plan) return;
  DropShard("the shard was unloaded");
  wanted_.reset();
}

void SimNode::StartLife() {
  ++shard_life_;
  const Recipe recipe = {.model_id = ModelId("sha256:sim"),
                         .numerics_id = NumericsId("hash-1"),
                         .plan_epoch = wanted_->plan};
  stage_ = std::make_unique<StageCore>(
      StageOptions{.node = options_.id,
                   .incarnation = incarnation_,
                   .recipe = recipe,
                   .layers = wanted_->layers,
                   .layers_total = kLayersTotal,
                   .is_head = wanted_->is_head,
                   .hidden_dim = kHiddenDim,
                   .pages_total = wanted_->kv_pages,
                   .context_tokens_max = 64,
                   .resume_timeout = options_.resume_timeout,
                   .floor = floor_,
                   .authorise = [this](const OpenAttempt& open) { return Authorise(open); }});
  if (wanted_->is_head) {
    head_ = std::make_unique<HeadCore>(
        HeadOptions{.node = options_.id,
                    .layers = wanted_->layers,
                    .vocab_size = kVocabSize,
                    .hidden_dim = kHiddenDim,
                    .context_tokens_max = 64,
                    .chunk_tokens_max = options_.chunk_tokens_max,
                    .piece_tokens_decoding = 2 * options_.chunk_tokens_max,
                    .piece_tokens_idle = 4 * options_.chunk_tokens_max,
                    .attempts_max = static_cast<size_t>(options_.head_slots),
                    .queue_max = static_cast<size_t>(options_.head_queue),
                    .drafts = options_.drafts,
                    .proposers = [this](const RunAttempt& run) {
                      return ProposersFor(run, cluster_->reference);
                    }});
  }
  context().checker->OnShardLife(number(), incarnation_);
}

absl::Status SimNode::Authorise(const OpenAttempt& open) const {
  const bool known = open.capability == OpenCapability(key_, open);
  if (known || !options_.capabilities) return absl::OkStatus();
  return MakeFailure(FailureKind::kUnauthorised, "the capability is not the coordinator's");
}

void SimNode::DrainHead(SimTime length) {
  if (!alive()) return;
  drains_ = true;
  if (head_ == nullptr) return;
  head_->Drain(MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.id}, "it drains"),
               Now() + absl::Nanoseconds(length), Now());
  Drain();
}

void SimNode::EndLifeOfShard(const std::string& reason) {
  if (stage_ == nullptr) return;
  const absl::Status status =
      MakeFailure({.kind = FailureKind::kWorkerDeath, .node = options_.id}, reason);
  if (head_ != nullptr && head_->attempts_queued() > 0) {
    context().checker->Count(Sometimes::kHaltWithQueued);
  }
  if (head_ != nullptr) head_->Halt(status, Now());
  stage_->CloseAll(Now());
  Drain();
  ++shard_life_;
  for (auto& [peer, stream] : links_in_) cluster_->network.HangUp(stream, 1);
  for (auto& [peer, link] : links_out_) {
    if (link.stream != nullptr) cluster_->network.HangUp(link.stream, 0);
    pulses_->OnPeerGone(peer, Now());
  }
  links_in_.clear();
  newest_in_.clear();
  links_out_.clear();
  while (!runs_.empty()) EndRun(runs_.begin()->first, status, nullptr);
  context().checker->OnHalted(*this);
  context().checker->OnStageGone(*stage_);
  stage_.reset();
  head_.reset();
}

void SimNode::DropShard(const std::string& reason) {
  ++load_ticket_;
  EndLifeOfShard(reason);
  held_ = false;
  if (device_ == nullptr) return;
  device_->Retire();
  retired_.push_back(std::move(device_));
}

void SimNode::ServeOpen(const OpenAttempt& open,
                        const std::function<void(absl::StatusOr<OpenReply>)>& reply) {
  context().trace.Add(TraceKind::kOpen, number(), open.key.session.value(), open.key.epoch.value());
  if (stage_ == nullptr) {
    return reply(MakeFailure(FailureKind::kWorkerDeath, "this node holds no shard"));
  }
  absl::StatusOr<OpenReply> answer = stage_->Open(open, Now());
  context().checker->OnOpenAnswered(*this, open, answer.status());
  reply(std::move(answer));
  Drain();
}

void SimNode::ServeFence(const FenceOrder& order,
                         const std::function<void(absl::StatusOr<FenceReply>)>& reply) {
  context().trace.Add(TraceKind::kFence, number(), order.session.value(), order.epoch.value());
  // A key belongs to one life; without keys the life itself is compared.
  const bool known = options_.capabilities ? order.capability == FenceCapability(key_, order)
                                           : order.incarnation == incarnation_;
  if (!known) {
    return reply(
        MakeFailure(FailureKind::kUnauthorised, "the capability is not the coordinator's"));
  }
  if (stage_ == nullptr) return reply(FenceReply{});
  const uint64_t ignored = stage_->stats().fences_ignored;
  const FenceReply answer = stage_->Fence(order.session, order.epoch, order.term, Now());
  const bool heard = stage_->stats().fences_ignored == ignored;
  if (heard) {
    context().checker->OnFenceObeyed(*this, order.session, order.epoch, order.reason);
    if (head_ != nullptr) head_->OnFence(order.session, order.epoch, order.reason, Now());
  }
  Drain();
  reply(answer);
}

void SimNode::ServeRun(RunOrder order, Stream* stream) {
  const AttemptKey key = order.run.key;
  context().trace.Add(TraceKind::kRun, number(), key.session.value(), key.epoch.value());
  const auto fail = [&](const absl::Status& status) {
    runs_[key] = {.stream = stream, .asker = order.asker};
    EndRun(key, status, nullptr);
  };
  if (runs_.contains(key)) {
    // A copy: the stream fails, the run it copies goes on.
    cluster_->network.HangUp(stream, 1);
    return;
  }
  if (head_ == nullptr) {
    return fail(MakeFailure({.kind = FailureKind::kIncompatibleRecipe, .node = options_.id},
                            "this node holds no head"));
  }
  const absl::StatusOr<const OpenAttempt*> open =
      stage_->CheckRun(key, order.term, order.incarnation, order.capability);
  if (!open.ok()) return fail(open.status());
  order.run.route = (*open)->route;
  order.run.tokens_max = (*open)->tokens_max;
  const int32_t in_flight = std::max(1, order.run.rounds_in_flight);
  const absl::Status status = head_->OnRun(std::move(order.run), Now());
  if (!status.ok()) return fail(status);
  context().checker->OnRunAccepted(*this, key, in_flight);
  runs_[key] = {.stream = stream, .asker = order.asker};
  cluster_->network.OnEnd(stream, 1, [this, key, stream, life = shard_life_] {
    const auto it = runs_.find(key);
    if (life != shard_life_ || it == runs_.end() || it->second.stream != stream) return;
    context().trace.Add(TraceKind::kRunCancel, number(), key.session.value(), key.epoch.value());
    runs_.erase(it);
    head_->OnCancel(key, Now());
    Drain();
  });
  Drain();
}

void SimNode::EndRun(const AttemptKey& key, const absl::Status& status, const AttemptEnd* end) {
  const auto it = runs_.find(key);
  if (it == runs_.end()) return;
  const Run run = it->second;
  runs_.erase(it);
  context().trace.Add(TraceKind::kRunEnd, number(), key.session.value(),
                      static_cast<uint64_t>(status.code()));
  std::optional<RunResult> result;
  if (end != nullptr && status.ok()) {
    result = RunResult{.reason = end->reason,
                       .tokens = end->tokens,
                       .stop_token = end->stop_token,
                       .timings = end->timings};
  }
  cluster_->network.Send(run.stream, 1, [run, key, status, result] {
    run.asker->OnRunEnd(run.stream, key, status, result);
  });
  cluster_->network.HangUp(run.stream, 1);
}

}  // namespace shardline::sim
