#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {

namespace {

constexpr char kModelName[] = "sim";
constexpr SimTime kAbandonAfter = 2 * kSecond;  // For clients to come back after a takeover.
constexpr SimTime kAbandonRetry = 200 * kMillisecond;
constexpr SimTime kFloorEvery = 1 * kSecond;
constexpr absl::Duration kRetention = absl::Seconds(4);

}  // namespace

SimCoordinator::SimCoordinator(SimCluster* cluster, SimDisk* disk,
                               const SimCoordinatorOptions& options)
    : SimProcess(cluster->context, options.number, options.rate_ppm),
      cluster_(cluster),
      disk_(disk),
      options_(options) {}

SimCoordinator::~SimCoordinator() = default;

namespace {

// Which nodes hold what, for the store.
std::string ToText(const Plan& plan) {
  std::string text;
  for (const PlannedShard& shard : plan.shards) {
    absl::StrAppend(&text, shard.node.value(), ":", shard.layers.begin, "-", shard.layers.end, ";");
  }
  return text;
}

std::vector<PlannedShard> FromText(absl::string_view text) {
  std::vector<PlannedShard> shards;
  for (absl::string_view part : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(part, absl::ByAnyChar(":-"));
    PlannedShard shard{.node = NodeId(std::string(fields.at(0))), .bytes = 100};
    SL_CHECK(absl::SimpleAtoi(fields.at(1), &shard.layers.begin));
    SL_CHECK(absl::SimpleAtoi(fields.at(2), &shard.layers.end));
    shard.is_head = shard.layers.begin == 0;
    shards.push_back(shard);
  }
  return shards;
}

}  // namespace

void SimCoordinator::Start() {
  BeginLife();
  disk_->store->Reopen();
  abandoned_ended_ = false;
  out_of_date_ = false;
  if (!Restore().ok()) {
    Kill();
    context().queue.At(context().queue.now() + 200 * kMillisecond, nullptr, [this] {
      if (!alive() && cluster_->coordinator() == this) Start();
    });
    return;
  }
  After(kAbandonAfter, [this] { EndAbandoned(); });
  After(kFloorEvery, [this] { RaiseFloor(); });
}

absl::Status SimCoordinator::Restore() {
  testing::MemoryStore& store = *disk_->store;
  absl::StatusOr<Term> term = store.BeginTerm();
  if (!term.ok()) return term.status();
  term_ = *term;
  const absl::StatusOr<Incarnation> first = store.NextIncarnationBlock(term_);
  if (!first.ok()) return first.status();
  if (const auto fenced = store.FenceAllOpen(term_); !fenced.ok()) return fenced.status();
  context().checker->OnTakeover(*this, store);
  membership_ = std::make_unique<MembershipCore>(MembershipOptions{.term = term_}, *first);
  routes_ = std::make_unique<RouteTable>(RouteTableOptions());
  sessions_ = std::make_unique<SessionsCore>(options_.sessions);
  absl::StatusOr<std::optional<StoredPlan>> stored = store.LatestPlan();
  if (!stored.ok()) return stored.status();
  Plan plan = FirstPlan();
  if (stored->has_value()) {
    plan.epoch = (*stored)->epoch;
    plan.shards = FromText((*stored)->text);
  } else {
    const absl::StatusOr<PlanEpoch> epoch = store.CreatePlan(term_, ToText(plan));
    if (!epoch.ok()) return epoch.status();
    plan.epoch = *epoch;
  }
  plan_ = plan;
  return routes_->OnPlan(plan, Now());
}

Plan SimCoordinator::FirstPlan() const {
  return {.model = kModelName,
          .model_id = ModelId("sha256:sim"),
          .layer_count = kLayersTotal,
          .shards = options_.shards,
          .replicas = options_.replicas};
}

// As model_loads.cc and PlaceAgain, for nodes that all have room: a lost range goes to an idle
// node, or the whole model is cut anew over what lives.
void SimCoordinator::Replan(const RouteActions::Replan& ask) {
  std::vector<NodeId> usable;
  std::vector<NodeId> idle;
  for (const NodeView& view : membership_->List(Now())) {
    const StagePeer life{view.node, view.incarnation};
    const auto& avoid = ask.avoid.nodes;
    if (!view.live || std::find(avoid.begin(), avoid.end(), life) != avoid.end()) continue;
    usable.push_back(view.node);
    const bool planned = std::any_of(plan_->shards.begin(), plan_->shards.end(),
                                     [&](const auto& shard) { return shard.node == view.node; });
    if (!planned) idle.push_back(view.node);
  }
  Plan plan = *plan_;
  if (!ask.lost.empty() && idle.size() >= ask.lost.size()) {
    for (const LayerRange& range : ask.lost) {
      bool placed = false;
      std::erase_if(plan.shards, [&](PlannedShard& shard) {
        if (shard.layers != range) return false;
        if (std::exchange(placed, true)) return true;
        shard.node = idle.back();
        return false;
      });
      idle.pop_back();
    }
  } else {
    plan.shards.clear();
    const auto stages = static_cast<int32_t>(std::min<size_t>(usable.size(), 3));
    for (int32_t i = 0; i < stages; ++i) {
      plan.shards.push_back(
          {.node = usable[static_cast<size_t>(i)],
           .layers = {.begin = kLayersTotal * i / stages, .end = kLayersTotal * (i + 1) / stages},
           .is_head = i == 0,
           .bytes = 100});
    }
  }
  if (plan.shards.empty()) {
    routes_->OnReplanRefused(ask.model, ask.plan, "no node is left", Now());
    return;
  }
  Store([this, text = ToText(plan)](
            testing::MemoryStore& store) { return store.CreatePlan(term_, text); },
        [this, plan, in_force = ask.plan](const absl::StatusOr<PlanEpoch>& epoch) {
          OnReplanStored(plan, in_force, epoch);
        });
}

void SimCoordinator::OnReplanStored(Plan plan, PlanEpoch in_force,
                                    const absl::StatusOr<PlanEpoch>& epoch) {
  absl::Status taken = epoch.status();
  if (epoch.ok()) {
    plan.epoch = *epoch;
    taken = routes_->OnReplan(plan, Now());
  }
  if (!taken.ok()) {
    routes_->OnReplanRefused(plan.model, in_force, std::string(taken.message()), Now());
    if (!epoch.ok()) return;
  } else {
    context().checker->Count(Sometimes::kReplanned);
    plan_ = plan;
  }
  Store([this, forget = taken.ok() ? in_force : *epoch](
            testing::MemoryStore& store) { return store.ForgetPlan(term_, forget); },
        [](const absl::Status&) {});
}

void SimCoordinator::EndAbandoned() {
  Store([this](testing::MemoryStore& store) { return store.EndAbandoned(term_); },
        [this](const absl::StatusOr<int64_t>& ended) {
          if (!ended.ok() && FailureKindOf(ended.status()) != FailureKind::kStaleEpoch) {
            After(kAbandonRetry, [this] { EndAbandoned(); });
            return;
          }
          abandoned_ended_ = true;
        });
}

void SimCoordinator::RaiseFloor() {
  Store([this](testing::MemoryStore& store) { return store.RaiseFloor(term_, kRetention); },
        [this](const absl::StatusOr<SessionId>& floor) {
          if (floor.ok()) floor_ = *floor;
          After(kFloorEvery, [this] { RaiseFloor(); });
        });
}

void SimCoordinator::Kill() {
  EndLife(false);
  context().checker->OnCoordinatorDied(*this);
  membership_.reset();
  routes_.reset();
  sessions_.reset();
  streams_.clear();
  stream_ids_.clear();
  diallers_.clear();
  holds_.clear();
  stream_of_node_.clear();
  callers_.clear();
  payloads_.clear();
  head_capabilities_.clear();
  keys_.clear();
  runs_.clear();
  disk_free_at_ = 0;
  cluster_->network.OnDeath(*this);
}

bool SimCoordinator::ready() const { return routes_ != nullptr && routes_->any_ready(); }

void SimCoordinator::OnWake() {
  membership_->OnTick(Now());
  routes_->OnTick(Now());
  sessions_->OnTick(Now());
}

void SimCoordinator::AfterEvent() {
  if (!alive()) return;
  while (CarryOutMembership() || CarryOutSessions() || CarryOutRoutes()) {
  }
  WakeAt(std::min({membership_->NextWake(), routes_->NextWake(), sessions_->NextWake()}));
  if (sessions_->queue().waiting() > 0) context().checker->Count(Sometimes::kWaitedForRoom);
  context().checker->OnCoordinatorEvent(*this);
}

void SimCoordinator::OnNodeHello(SimNode* node, Stream* stream, const NodeHello& hello,
                                 const std::optional<ShardReport>& holds) {
  const JoinStreamId id(++join_streams_);
  context().trace.Add(TraceKind::kHello, number(), static_cast<uint64_t>(node->number()),
                      id.value());
  streams_[id] = stream;
  stream_ids_[stream] = id;
  diallers_[id] = node;
  holds_[id] = holds;
  cluster_->network.OnEnd(stream, 1, [this, id] {
    holds_.erase(id);
    membership_->OnStreamClosed(id, Now());
  });
  membership_->OnHello(id, hello, Now());
}

void SimCoordinator::OnNodeBeat(Stream* stream, const NodeBeat& beat) {
  context().trace.Add(TraceKind::kBeat, number(), beat.number, beat.echo);
  const JoinStreamId id = stream_ids_.at(stream);
  for (const auto& [node, live] : stream_of_node_) {
    if (live == id) context().checker->OnBeat(*this, node, beat);
  }
  membership_->OnBeat(id, beat, Now());
}

void SimCoordinator::OnNodeReport(Stream* stream, const ShardReport& report) {
  const JoinStreamId id = stream_ids_.at(stream);
  for (const auto& [node, live] : stream_of_node_) {
    if (live != id) continue;
    const std::optional<NodeView> view = membership_->Find(node, Now());
    context().trace.Add(TraceKind::kReport, number(), report.plan.value(),
                        static_cast<uint64_t>(report.state));
    if (view) routes_->OnShardReport(node, view->incarnation, report, Now());
    return;
  }
}

bool SimCoordinator::CarryOutMembership() {
  if (!membership_->has_actions()) return false;
  const MembershipActions actions = membership_->TakeActions();
  if (!actions.out_of_date.empty()) {
    // Somebody has obeyed a higher term than ours: nothing more is served from this ledger.
    out_of_date_ = true;
    sessions_->OnShutdown(Now());
  }
  for (const MembershipActions::Lost& action : actions.lost) Lose(action);
  for (const MembershipActions::Refuse& action : actions.refuse) Refuse(action.stream);
  for (const MembershipActions::Welcome& action : actions.welcome) Welcome(action);
  for (const MembershipActions::Reply& action : actions.reply) {
    SimNode* const node = diallers_.at(action.stream);
    const LiveAttempts live = sessions_->LiveOn(action.node, action.incarnation);
    const BeatReplyWords words = {.number = action.number,
                                  .term = term_,
                                  .floor = floor_,
                                  .as_of = live.as_of,
                                  .live = live.attempts};
    cluster_->network.Send(streams_.at(action.stream), 1,
                           [node, words] { node->OnBeatReply(words); });
  }
  for (const MembershipActions::PeerSilent& action : actions.silent) {
    context().checker->Count(Sometimes::kLinkSilent);
    routes_->OnLinkSuspected(action.from.node, action.to.node, Now());
  }
  return true;
}

void SimCoordinator::Lose(const MembershipActions::Lost& action) {
  context().trace.Add(TraceKind::kNodeLost, number(), action.incarnation.value(),
                      static_cast<uint64_t>(action.kind));
  context().checker->OnNodeLost(*this, action.node, action.incarnation);
  routes_->OnNodeLost(action.node, action.incarnation, action.kind, action.reason, Now());
  sessions_->OnNodeLost(action.node, action.incarnation, action.kind, action.reason, Now());
  while (CarryOutSessions()) {  // Fenced before a successor is welcomed.
  }
  stream_of_node_.erase(action.node);
}

void SimCoordinator::Welcome(const MembershipActions::Welcome& action) {
  const std::optional<NodeView> view = membership_->Find(action.node, Now());
  std::optional<ShardReport> holds;
  if (auto held = holds_.find(action.stream); held != holds_.end()) holds = held->second;
  holds_.erase(action.stream);
  if (!view) return;
  context().checker->OnNodeWelcomed(*this, action.node, action.incarnation);
  stream_of_node_[action.node] = action.stream;
  SimNode* const node = diallers_.at(action.stream);
  uint64_t& key = keys_[{action.node, action.incarnation}];
  if (key == 0) key = context().rng.Next() | 1;
  const WelcomeWords words = {
      .incarnation = action.incarnation, .term = term_, .key = key, .floor = floor_};
  cluster_->network.Send(streams_.at(action.stream), 1, [node, words] { node->OnWelcome(words); });
  routes_->OnNodeReady(action.node, action.incarnation, view->address, holds, Now());
  sessions_->OnNodeReady(action.node, action.incarnation, Now());
}

void SimCoordinator::Refuse(JoinStreamId stream) {
  context().trace.Add(TraceKind::kRefusal, number(), stream.value());
  holds_.erase(stream);
  SimNode* const node = diallers_.at(stream);
  cluster_->network.Send(streams_.at(stream), 1,
                         [node, link = streams_.at(stream)] { node->OnRefused(link); });
  cluster_->network.HangUp(streams_.at(stream), 1);
}

Stream* SimCoordinator::StreamOf(const NodeId& node) const {
  const auto found = stream_of_node_.find(node);
  return found == stream_of_node_.end() ? nullptr : streams_.at(found->second);
}

bool SimCoordinator::CarryOutRoutes() {
  if (!routes_->has_actions()) return false;
  const RouteActions actions = routes_->TakeActions();
  for (const RouteActions::Unload& action : actions.unload) {
    Stream* const stream = StreamOf(action.node);
    if (stream == nullptr) continue;
    SimNode* const node = cluster_->NodeNamed(action.node);
    cluster_->network.Send(stream, 1, [node, plan = action.plan] { node->OnUnload(plan); });
  }
  for (const RouteActions::Load& action : actions.load) {
    Stream* const stream = StreamOf(action.node);
    if (stream == nullptr) continue;
    SimNode* const node = cluster_->NodeNamed(action.node);
    const PlannedShard& planned = plan_->shards.at(action.shard_index);
    const ShardOrder order = {.plan = action.plan,
                              .layers = planned.layers,
                              .is_head = planned.is_head,
                              .kv_pages = options_.kv_pages};
    cluster_->network.Send(stream, 1, [node, order] { node->OnLoad(order); });
  }
  for (const RouteActions::Probe& action : actions.probe) StartProbe(action);
  for (const RouteActions::Replan& action : actions.replan) Replan(action);
  if (!actions.changed.empty()) sessions_->OnRoutesChanged(Now());
  if (!actions.changed.empty()) context().trace.Add(TraceKind::kModelState, number(), ready());
  return true;
}

}  // namespace shardline::sim
