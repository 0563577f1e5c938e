#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <utility>

#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {

constexpr char kModelName[] = "sim";

SimCoordinator::SimCoordinator(SimCluster* cluster, SimDisk* disk,
                               const SimCoordinatorOptions& options)
    : SimProcess(cluster->context, options.number, options.rate_ppm),
      cluster_(cluster),
      disk_(disk),
      options_(options) {}

SimCoordinator::~SimCoordinator() = default;

void SimCoordinator::Start() {
  BeginLife();
  disk_->store->Reopen();
  if (!Restore().ok()) Kill();
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
  membership_ = std::make_unique<MembershipCore>(MembershipOptions(), *first);
  routes_ = std::make_unique<RouteTable>(RouteTableOptions());
  sessions_ = std::make_unique<SessionsCore>(options_.sessions);
  absl::StatusOr<std::optional<StoredPlan>> stored = store.LatestPlan();
  if (!stored.ok()) return stored.status();
  Plan plan{.model = kModelName, .model_id = ModelId("sha256:sim"), .layer_count = kLayersTotal};
  for (size_t i = 0; i < options_.ranges.size(); ++i) {
    plan.shards.push_back({.node = options_.planned[i],
                           .layers = options_.ranges[i],
                           .is_head = options_.ranges[i].begin == 0,
                           .bytes = 100});
  }
  if (stored->has_value()) {
    plan.epoch = (*stored)->epoch;
  } else {
    const absl::StatusOr<PlanEpoch> epoch = store.CreatePlan(term_, "sim");
    if (!epoch.ok()) return epoch.status();
    plan.epoch = *epoch;
  }
  plan_ = plan;
  return routes_->OnPlan(plan, Now());
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
  runs_.clear();
  disk_free_at_ = 0;
  cluster_->network.OnDeath(*this);
}

bool SimCoordinator::ready() const {
  if (routes_ == nullptr) return false;
  const std::vector<ModelView> views = routes_->List(Now());
  return std::any_of(views.begin(), views.end(),
                     [](const ModelView& view) { return view.state == ModelState::kReady; });
}

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
  const MembershipActions actions = membership_->TakeActions();
  if (actions.empty()) return false;
  for (const MembershipActions::Lost& action : actions.lost) Lose(action);
  for (const MembershipActions::Refuse& action : actions.refuse) Refuse(action.stream);
  for (const MembershipActions::Welcome& action : actions.welcome) Welcome(action);
  for (const MembershipActions::Reply& action : actions.reply) {
    SimNode* const node = diallers_.at(action.stream);
    cluster_->network.Send(streams_.at(action.stream), 1,
                           [node, number = action.number] { node->OnBeatReply(number); });
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
  const WelcomeWords words = {.incarnation = action.incarnation, .term = term_};
  cluster_->network.Send(streams_.at(action.stream), 1, [node, words] { node->OnWelcome(words); });
  routes_->OnNodeReady(action.node, action.incarnation, view->address, holds, Now());
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
  const RouteActions actions = routes_->TakeActions();
  if (actions.empty()) return false;
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
  if (!actions.changed.empty()) context().trace.Add(TraceKind::kModelState, number(), ready());
  return true;
}

}  // namespace shardline::sim
