#include "coordinator/model_loads.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/model_preview.h"

namespace shardline {
namespace {

constexpr size_t kNameBytesMax = 256;

Store::FileKey ToStoreKey(const ManifestCache::Key& key) {
  return {.path = key.path, .size = key.size, .modified_ns = key.modified_ns};
}

// "n1 layers 0-9, n2 layers 10-19": a plan in one line.
std::string ShardsText(const Plan& plan) {
  return absl::StrJoin(plan.shards, ", ", [](std::string* out, const PlannedShard& shard) {
    absl::StrAppend(out, shard.node.value(), " ", shard.layers.ToString());
  });
}

}  // namespace

ModelLoads::ModelLoads(World world, const RouteTableOptions& options)
    : world_(std::move(world)), routes_(options) {}

ModelLoads::~ModelLoads() { reader_.Stop(); }

std::optional<ModelLoads::Served> ModelLoads::Find(const std::string& name) const {
  absl::MutexLock lock(&mu_);
  if (name.empty()) {
    if (served_.size() != 1) return std::nullopt;
    return served_.begin()->second;
  }
  auto found = served_.find(name);
  if (found == served_.end()) return std::nullopt;
  return found->second;
}

std::map<std::string, ModelLoads::Served> ModelLoads::InService() const {
  absl::MutexLock lock(&mu_);
  return served_;
}

void ModelLoads::Restore(const std::vector<StoredPlan>& plans) {
  std::map<std::string, StoredPlan> newest;
  const auto forget = [this](PlanEpoch epoch) {
    world_.store->RunAndWait([epoch, term = world_.term](Store& store) {
      const absl::Status status = store.ForgetPlan(term, epoch);
      if (!status.ok()) LogWarning("plan not forgotten", {{"plan", epoch}, {"status", status}});
    });
  };
  for (const StoredPlan& stored : plans) {
    const absl::StatusOr<ModelPlan> plan = ParseModelPlan(stored.epoch, stored.text);
    if (!plan.ok()) {
      LogWarning("the stored plan is not taken up",
                 {{"plan", stored.epoch}, {"status", plan.status()}});
      continue;
    }
    auto [known, is_first] = newest.try_emplace(plan->plan.model, stored);
    if (is_first) continue;
    // Between storing a plan and forgetting the one before it the coordinator died.
    forget(std::min(known->second.epoch, stored.epoch));
    if (known->second.epoch < stored.epoch) known->second = stored;
  }
  std::map<PlanEpoch, StoredPlan> by_epoch;
  for (const auto& [name, stored] : newest) by_epoch[stored.epoch] = stored;
  for (const auto& [epoch, stored] : by_epoch) {
    const absl::Status restored = RestoreOne(stored);
    if (restored.ok()) continue;
    LogWarning("the stored plan is not taken up", {{"plan", epoch}, {"status", restored}});
  }
}

absl::Status ModelLoads::RestoreOne(const StoredPlan& stored) {
  SL_ASSIGN_OR_RETURN(ModelPlan plan, ParseModelPlan(stored.epoch, stored.text));
  SL_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFile> file,
                      ReadModelFile(plan.path, CacheOnStoreThread()));
  if (file->id != plan.plan.model_id) {
    return MakeFailure(
        FailureKind::kIncompatibleRecipe,
        absl::StrCat(plan.path, " is another model than plan ", stored.epoch.value(),
                     " was made for: ", file->id.value(), ", not ", plan.plan.model_id.value()));
  }
  const std::string name = plan.plan.model;
  Entry entry{.load = ++loads_, .path = plan.path, .file = std::move(file)};
  entry.wish = plan.wish;
  entry.plan = std::move(plan);
  SL_RETURN_IF_ERROR(TakeIntoService(name, entry));
  entries_[name] = std::move(entry);
  LogInfo("model remembered", {{"model", name}, {"plan", stored.epoch}});
  return absl::OkStatus();
}

void ModelLoads::LoadWhenPossible(const v1::LoadModelRequest& request) {
  waiting_ = request;
  waiting_problem_ = absl::StrCat(request.path(), ": waits for ",
                                  std::max<uint32_t>(1, request.shards()), " node(s) to join");
  TryWaiting();
}

void ModelLoads::TryWaiting() {
  if (!waiting_.has_value()) return;
  if (entries_.contains(ModelNameFor(*waiting_))) return;  // Under way, or there already.
  const size_t wanted =
      std::max<size_t>({1, waiting_->shards(), static_cast<size_t>(waiting_->ranges_size())});
  if (UsableNodes("", {}).size() < wanted * std::max<uint32_t>(1, waiting_->replicas())) return;
  Begin(*waiting_, {});
}

absl::Status ModelLoads::MayLoad(const v1::LoadModelRequest& request) const {
  if (request.path().empty()) {
    return MakeFailure(FailureKind::kInvalidRequest, "the path is empty");
  }
  const std::string name = ModelNameFor(request);
  const bool is_fit =
      name.size() <= kNameBytesMax &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
  if (!is_fit) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("a model's name is at most ", kNameBytesMax,
                                    " bytes without control characters"));
  }
  if (!entries_.contains(name)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("model ", name,
                                               " is loaded or loading already; unload it first, or "
                                               "give another --name"));
}

void ModelLoads::Load(LoadStreamId stream, const v1::LoadModelRequest& request) {
  const absl::Status may = MayLoad(request);
  if (!may.ok()) return world_.admin->End(stream, may);
  Begin(request, {stream});
}

absl::StatusOr<std::string> ModelLoads::BeginLoad(const v1::LoadModelRequest& request) {
  SL_RETURN_IF_ERROR(MayLoad(request));
  SL_RETURN_IF_ERROR(WishOf(request).status());
  return Begin(request, {});
}

// REQUIRES: the name is free.
std::string ModelLoads::Begin(const v1::LoadModelRequest& request,
                              std::vector<LoadStreamId> watchers) {
  const std::string name = ModelNameFor(request);
  Entry& entry = entries_[name];
  entry = {.load = ++loads_, .path = request.path(), .watchers = std::move(watchers)};
  absl::StatusOr<ModelWish> wish = WishOf(request);
  if (!wish.ok()) {
    Fail(name, wish.status());
    return name;
  }
  entry.wish = *std::move(wish);
  entry.wish.name = name;
  entry.wish.chunk_tokens_max = world_.chunk_tokens_max;
  Note(name, entry, absl::StrCat("reading ", request.path()));
  reader_.Post([this, name, load = entry.load, path = request.path()] {
    absl::StatusOr<std::shared_ptr<const ModelFile>> file =
        ReadModelFile(path, CacheOnStoreThread());
    world_.loop->Post(
        [this, name, load, file = std::move(file)]() mutable { OnFileRead(name, load, file); });
  });
  return name;
}

void ModelLoads::OnFileRead(const std::string& name, uint64_t load,
                            absl::StatusOr<std::shared_ptr<const ModelFile>> file) {
  Entry* entry = FindLoad(name, load);
  if (entry == nullptr) return;  // Unloaded meanwhile.
  // To the reader a bad file is a bad argument; to the operator the request was fine.
  if (absl::IsInvalidArgument(file.status())) {
    return Fail(name, absl::DataLossError(file.status().message()));
  }
  if (!file.ok()) return Fail(name, file.status());
  entry->file = *std::move(file);
  const std::vector<NodeCost> nodes = UsableNodes("", {});
  if (nodes.empty()) {
    const std::string why = live_.empty()
                                ? "none has joined"
                                : absl::StrCat("all ", live_.size(), " that joined hold a shard");
    return Fail(name, MakeFailure(FailureKind::kOverloaded,
                                  absl::StrCat("no node is free for ", name, ": ", why)));
  }
  absl::StatusOr<PlacedModel> placed = PlaceModel(*entry->file, entry->wish, nodes);
  if (!placed.ok()) return Fail(name, placed.status());
  entry->plan = std::move(placed->plan);
  Note(name, *entry,
       absl::StrCat("placed, context ", entry->plan->context_tokens_max, " tokens:\n",
                    placed->explanation));
  world_.store->Run(
      [text = SerializeModelPlan(*entry->plan), term = world_.term](Store& store) {
        return store.CreatePlan(term, text);
      },
      [this, name, load](absl::StatusOr<PlanEpoch> epoch) { OnPlanStored(name, load, epoch); });
}

void ModelLoads::OnPlanStored(const std::string& name, uint64_t load,
                              absl::StatusOr<PlanEpoch> epoch) {
  Entry* entry = FindLoad(name, load);
  if (entry == nullptr) {  // Unloaded meanwhile.
    if (epoch.ok()) Forget(*epoch);
    return;
  }
  if (!epoch.ok()) return Fail(name, epoch.status());
  entry->plan->plan.epoch = *epoch;
  const absl::Status status = TakeIntoService(name, *entry);
  if (!status.ok()) {
    Forget(*epoch);
    return Fail(name, status);
  }
  if (waiting_.has_value() && waiting_->path() == entry->path) {
    waiting_.reset();
    waiting_problem_.clear();
  }
  Tell(EventLevel::kInfo, "plan_made", name,
       absl::StrCat("plan ", epoch->value(), ": ", ShardsText(entry->plan->plan)));
  Note(name, *entry, absl::StrCat("plan ", epoch->value(), " in force, the nodes load"));
}

absl::Status ModelLoads::TakeIntoService(const std::string& name, Entry& entry) {
  SL_RETURN_IF_ERROR(routes_.OnPlan(entry.plan->plan, world_.clock->Now()));
  entry.in_service = true;
  Serve(name, entry);
  return absl::OkStatus();
}

void ModelLoads::Serve(const std::string& name, const Entry& entry) {
  absl::MutexLock lock(&mu_);
  served_[name] = {.file = entry.file, .context_tokens_max = entry.plan->context_tokens_max};
}

void ModelLoads::Forget(PlanEpoch epoch) {
  world_.store->Run(
      [epoch, term = world_.term](Store& store) { return store.ForgetPlan(term, epoch); },
      [epoch](const absl::Status& status) {
        if (!status.ok()) LogWarning("plan not forgotten", {{"plan", epoch}, {"status", status}});
      });
}

// The new plan is durable before any node hears of it, and the old one is forgotten after it is in
// force: a coordinator that dies in between finds both and takes the newer.
void ModelLoads::Replan(const RouteActions::Replan& ask) {
  auto found = entries_.find(ask.model);
  if (found == entries_.end() || !found->second.in_service) return;
  Entry& entry = found->second;
  LogWarning("plan lost", {{"model", ask.model}, {"plan", ask.plan}, {"reason", ask.reason}});
  PlanLoss loss{.lost = ask.lost, .avoid_links = {}};
  for (const RouteSuspects::Link& link : ask.avoid.links) {
    loss.avoid_links.push_back({.from = link.from, .to = link.to});
  }
  const std::vector<NodeCost> idle = UsableNodes("", ask.avoid.nodes);
  const std::vector<NodeCost> usable = UsableNodes(ask.model, ask.avoid.nodes);
  absl::StatusOr<PlacedModel> placed = PlaceAgain(*entry.file, *entry.plan, loss, idle, usable);
  if (!placed.ok()) return RefuseReplan(ask.model, ask.plan, placed.status());
  LogInfo("placed again", {{"model", ask.model}, {"placement", placed->explanation}});
  ++replans_[{ask.model, ask.lost.empty() ? "link" : "lost"}];
  entry.next = placed->plan;
  world_.store->Run([text = SerializeModelPlan(placed->plan),
                     term = world_.term](Store& store) { return store.CreatePlan(term, text); },
                    [this, name = ask.model, load = entry.load, in_force = ask.plan,
                     next = std::move(placed->plan)](absl::StatusOr<PlanEpoch> epoch) mutable {
                      OnReplanStored(name, load, in_force, std::move(next), epoch);
                    });
}

void ModelLoads::OnReplanStored(const std::string& name, uint64_t load, PlanEpoch in_force,
                                ModelPlan next, absl::StatusOr<PlanEpoch> epoch) {
  Entry* entry = FindLoad(name, load);
  if (entry == nullptr) {
    if (epoch.ok()) Forget(*epoch);
    return;
  }
  entry->next.reset();
  if (!epoch.ok()) return RefuseReplan(name, in_force, epoch.status());
  next.plan.epoch = *epoch;
  const absl::Status taken = routes_.OnReplan(next.plan, world_.clock->Now());
  if (!taken.ok()) {
    Forget(*epoch);
    if (FailureKindOf(taken) != FailureKind::kStaleEpoch) RefuseReplan(name, in_force, taken);
    return;
  }
  const PlanEpoch old = entry->plan->plan.epoch;
  entry->plan = std::move(next);
  Serve(name, *entry);
  Forget(old);
  LogInfo("plan replaced", {{"model", name}, {"old", old}, {"plan", *epoch}});
  Tell(EventLevel::kInfo, "plan_made", name,
       absl::StrCat("plan ", epoch->value(), " takes the place of ", old.value(), ": ",
                    ShardsText(entry->plan->plan)));
}

void ModelLoads::RefuseReplan(const std::string& name, PlanEpoch in_force,
                              const absl::Status& why) {
  LogWarning("plan not replaced", {{"model", name}, {"plan", in_force}, {"status", why}});
  Tell(EventLevel::kWarning, "plan_refused", name,
       absl::StrCat("no plan takes the place of ", in_force.value(), ": ",
                    std::string(why.message())));
  routes_.OnReplanRefused(name, in_force, std::string(why.message()), world_.clock->Now());
}

void ModelLoads::Unload(const std::string& name, absl::AnyInvocable<void(absl::Status)> done) {
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    return done(absl::NotFoundError(absl::StrCat("no model ", name, " is loaded")));
  }
  for (const LoadStreamId watcher : found->second.watchers) {
    world_.admin->End(watcher, MakeFailure(FailureKind::kCancelled,
                                           absl::StrCat("model ", name, " was unloaded")));
  }
  const bool in_service = found->second.in_service;
  PlanEpoch epoch;
  if (found->second.plan.has_value()) epoch = found->second.plan->plan.epoch;
  entries_.erase(found);
  {
    absl::MutexLock lock(&mu_);
    served_.erase(name);
  }
  world_.cancel_sessions(name);
  if (!in_service) return done(absl::OkStatus());
  const absl::Status status = routes_.OnUnload(name, world_.clock->Now());
  if (!status.ok()) return done(status);
  LogInfo("model unloaded", {{"model", name}, {"plan", epoch}});
  Tell(EventLevel::kInfo, "model_unloaded", name, "unloaded");
  world_.store->Run(
      [epoch, term = world_.term](Store& store) { return store.ForgetPlan(term, epoch); },
      [done = std::move(done)](const absl::Status& forgotten) mutable { done(forgotten); });
}

void ModelLoads::OnNodeReady(const NodeView& node, const std::optional<ShardReport>& holds) {
  live_[node.node] = node;
  routes_.OnNodeReady(node.node, node.incarnation, node.address, holds, world_.clock->Now());
  TryWaiting();
}

void ModelLoads::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                            const std::string& reason) {
  live_.erase(node);
  routes_.OnNodeLost(node, incarnation, kind, reason, world_.clock->Now());
}

void ModelLoads::OnShardReport(const NodeId& node, Incarnation incarnation,
                               const ShardReport& report) {
  routes_.OnShardReport(node, incarnation, report, world_.clock->Now());
}

void ModelLoads::OnLinkSuspected(const NodeId& from, const NodeId& to) {
  routes_.OnLinkSuspected(from, to, world_.clock->Now());
}

void ModelLoads::OnTick() { routes_.OnTick(world_.clock->Now()); }

bool ModelLoads::CarryOut() {
  RouteActions actions = routes_.TakeActions();
  if (actions.empty()) return false;
  for (const RouteActions::Unload& action : actions.unload) {
    v1::CoordinatorMessage message;
    message.mutable_unload()->set_plan_epoch(action.plan.value());
    world_.send(action.node, std::move(message));
  }
  for (const RouteActions::Load& action : actions.load) {
    for (const auto& [name, entry] : entries_) {
      if (!entry.in_service || entry.plan->plan.epoch != action.plan) continue;
      v1::CoordinatorMessage message;
      *message.mutable_load() = LoadShardFor(*entry.plan, *entry.file, action.shard_index);
      world_.send(action.node, std::move(message));
    }
  }
  for (const RouteActions::Probe& action : actions.probe) {
    auto found = entries_.find(action.route.model);
    if (found == entries_.end()) continue;
    Route route = action.route;
    route.rounds = RoundsOf(route);
    LogInfo("ring probed", {{"model", route.model},
                            {"route", route.ToString()},
                            {"rounds_in_flight", route.rounds.in_flight},
                            {"lap_step", route.rounds.lap_step},
                            {"lap_row", route.rounds.lap_row}});
    world_.probe(route, found->second.file,
                 [this, plan = action.plan, number = action.number](absl::Status status) {
                   routes_.OnProbeDone(plan, number, status, world_.clock->Now());
                 });
  }
  for (const RouteActions::Replan& action : actions.replan) Replan(action);
  std::sort(actions.changed.begin(), actions.changed.end());
  actions.changed.erase(std::unique(actions.changed.begin(), actions.changed.end()),
                        actions.changed.end());
  for (const std::string& name : actions.changed) {
    TellWatchers(name);
    if (world_.routes_changed != nullptr) world_.routes_changed(name);
  }
  return true;
}

absl::StatusOr<Route> ModelLoads::RouteFor(const std::string& model, const RouteSuspects& avoid,
                                           uint64_t affinity) {
  auto found = entries_.find(model);
  if (found != entries_.end() && !found->second.in_service) {
    return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(2)},
                       absl::StrCat("model ", model, " is loading: ", found->second.note));
  }
  const bool waited_for = waiting_.has_value() && found == entries_.end() &&
                          (model == ModelNameFor(*waiting_) || (model.empty() && entries_.empty()));
  if (waited_for) {
    return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(2)},
                       waiting_problem_);
  }
  SL_ASSIGN_OR_RETURN(Route route,
                      routes_.RouteAnyway(model, avoid, world_.clock->Now(), affinity));
  route.rounds = RoundsOf(route);
  return route;
}

RoundChoice ModelLoads::RoundsOf(const Route& route) const {
  std::vector<StageCost> costs = routes_.CostsOf(route);
  for (size_t stage = 0; stage < costs.size(); ++stage) {
    auto live = live_.find(route.stages[stage].node);
    if (live == live_.end()) return {};
    const NodeCapacity& capacity = live->second.capacity;
    costs[stage].read_bytes_per_s = capacity.read_bytes_per_s;
    costs[stage].machine = capacity.machine;
    costs[stage].cpus = capacity.cpus;
    costs[stage].threads = capacity.threads;
  }
  return ChooseRounds(costs);
}

bool ModelLoads::AnyReady() const { return routes_.any_ready(); }

// Before it is in service a model that fails is forgotten: the operator mends and tries again.
void ModelLoads::Fail(const std::string& name, const absl::Status& status) {
  auto found = entries_.find(name);
  if (found == entries_.end()) return;
  LogWarning("model not loaded", {{"model", name}, {"status", status}});
  Tell(EventLevel::kError, "model_failed", name,
       absl::StrCat("not loaded: ", std::string(status.message())));
  for (const LoadStreamId watcher : found->second.watchers) world_.admin->End(watcher, status);
  if (waiting_.has_value() && waiting_->path() == found->second.path) {
    waiting_problem_ = absl::StrCat(name, ": ", std::string(status.message()));
    // More nodes may help; a better file must come by hand.
    if (!absl::IsResourceExhausted(status)) waiting_.reset();
  }
  entries_.erase(found);
}

std::vector<NodeCost> ModelLoads::UsableNodes(const std::string& model,
                                              const std::vector<StagePeer>& avoid) const {
  std::set<NodeId> taken;
  for (const auto& [name, entry] : entries_) {
    if (name == model) continue;
    for (const std::optional<ModelPlan>* plan : {&entry.plan, &entry.next}) {
      if (!plan->has_value()) continue;
      for (const PlannedShard& shard : (*plan)->plan.shards) taken.insert(shard.node);
    }
  }
  std::vector<NodeCost> nodes;
  for (const auto& [id, node] : live_) {
    const bool avoided =
        std::find(avoid.begin(), avoid.end(), StagePeer{id, node.incarnation}) != avoid.end();
    const bool closed = world_.is_closed && world_.is_closed(id);
    if (taken.contains(id) || avoided || closed) continue;
    nodes.push_back({.node = id,
                     .memory_bytes = node.capacity.memory_bytes,
                     .read_bytes_per_s = node.capacity.read_bytes_per_s,
                     .int8_ops_per_s = node.capacity.int8_ops_per_s,
                     .threads = node.capacity.threads,
                     .device = absl::StrCat(node.capacity.backend, "/", node.capacity.device)});
  }
  return nodes;
}

ModelLoads::Entry* ModelLoads::FindLoad(const std::string& name, uint64_t load) {
  auto found = entries_.find(name);
  if (found == entries_.end() || found->second.load != load) return nullptr;
  return &found->second;
}

ManifestCache ModelLoads::CacheOnStoreThread() {
  return {.find =
              [store = world_.store](const ManifestCache::Key& key) {
                std::optional<std::string> found;
                store->RunAndWait([&found, &key](Store& s) {
                  absl::StatusOr<std::optional<std::string>> known =
                      s.FindManifest(ToStoreKey(key));
                  if (known.ok()) found = *std::move(known);
                });
                return found;
              },
          .put =
              [store = world_.store](const ManifestCache::Key& key, const std::string& manifest) {
                store->RunAndWait([&key, &manifest](Store& s) {
                  const absl::Status status = s.PutManifest(ToStoreKey(key), manifest);
                  if (!status.ok()) LogWarning("digests not cached", {{"status", status}});
                });
              }};
}

}  // namespace shardline
