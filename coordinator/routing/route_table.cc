#include "coordinator/routing/route_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

// How long a link that is sound again is remembered: longer than any session lives.
constexpr absl::Duration kLinkMemory = absl::Minutes(15);

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

}  // namespace

absl::Status RouteTable::OnPlan(const Plan& plan, Instant now) {
  SL_RETURN_IF_ERROR(ValidatePlan(plan));
  if (models_.contains(plan.model)) {
    return Invalid(absl::StrCat(plan.model, " is in service already; unload it first"));
  }
  SL_RETURN_IF_ERROR(CheckNew(plan));
  Model& model = models_[plan.model];
  model.since = now;
  Start(model, plan, now);
  Settle(model, now);
  return absl::OkStatus();
}

absl::Status RouteTable::OnReplan(const Plan& plan, Instant now) {
  SL_RETURN_IF_ERROR(ValidatePlan(plan));
  auto found = models_.find(plan.model);
  if (found == models_.end() || !found->second.replanning) {
    return MakeFailure(FailureKind::kStaleEpoch,
                       absl::StrCat("no other plan of ", plan.model, " is wanted any more"));
  }
  Model& model = found->second;
  if (plan.model_id != model.plan.model_id) {
    return Invalid(absl::StrCat(plan.model, " is another model than the one in service"));
  }
  SL_RETURN_IF_ERROR(CheckNew(plan));
  for (const Shard& shard : model.shards) {
    auto live = live_.find(shard.planned.node);
    const bool stays = std::any_of(
        plan.shards.begin(), plan.shards.end(),
        [&shard](const PlannedShard& other) { return other.node == shard.planned.node; });
    if (live == live_.end() || stays) continue;  // Who stays is told to load something else.
    actions_.unload.push_back({.node = shard.planned.node,
                               .incarnation = live->second.incarnation,
                               .plan = model.plan.epoch});
  }
  Start(model, plan, now);
  for (Shard& shard : model.shards) {
    if (shard.state != ShardState::kWaiting) continue;
    shard.state = ShardState::kLost;
    shard.kind = FailureKind::kHeartbeatLost;
    shard.reason = "lost before it could load";
  }
  actions_.changed.push_back(plan.model);
  Settle(model, now);
  return absl::OkStatus();
}

void RouteTable::OnReplanRefused(const std::string& name, PlanEpoch in_force,
                                 const std::string& reason, Instant now) {
  auto found = models_.find(name);
  if (found == models_.end()) return;
  Model& model = found->second;
  if (!model.replanning || model.plan.epoch != in_force) return;
  model.replanning = false;
  model.replan_refusal = reason;
  model.replan_at = now + options_.replan_retry;
  actions_.changed.push_back(name);
}

absl::Status RouteTable::OnUnload(const std::string& name, Instant now) {
  auto found = models_.find(name);
  if (found == models_.end()) return absl::NotFoundError(absl::StrCat("no model ", name));
  for (const Shard& shard : found->second.shards) {
    auto live = live_.find(shard.planned.node);
    if (live == live_.end()) continue;
    actions_.unload.push_back({.node = shard.planned.node,
                               .incarnation = live->second.incarnation,
                               .plan = found->second.plan.epoch});
  }
  actions_.changed.push_back(name);
  models_.erase(found);
  RetryReplans(now);
  return absl::OkStatus();
}

void RouteTable::OnNodeReady(const NodeId& node, Incarnation incarnation,
                             const std::string& address, const std::optional<ShardReport>& holds,
                             Instant now) {
  auto before = live_.find(node);
  if (before == live_.end() || before->second.incarnation != incarnation) StartLife(node);
  live_[node] = LiveNode{.incarnation = incarnation, .address = address};
  Shard* shard = nullptr;
  Model* model = ModelOfNode(node, &shard);
  // An order to load replaces what an older plan has left.
  const bool replaced = model != nullptr && holds.has_value() && holds->plan <= model->plan.epoch;
  if (holds.has_value() && holds->plan != PlanEpoch() && !replaced) {
    actions_.unload.push_back({.node = node, .incarnation = incarnation, .plan = holds->plan});
  }
  if (model != nullptr) {
    const bool same_life = shard->incarnation == incarnation && shard->state != ShardState::kLost;
    if (!same_life) {
      for (Shard& each : model->shards) each.probes_failed = 0;
      shard->proven = false;
    }
    if (replaced && holds->plan == model->plan.epoch && holds->state != ShardState::kFailed) {
      shard->incarnation = incarnation;
      TakeReport(*model, *shard, *holds, now);
    } else {
      OrderLoad(*model, *shard, now);
    }
    Settle(*model, now);
  }
  RetryReplans(now);
}

void RouteTable::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                            const std::string& reason, Instant now) {
  auto live = live_.find(node);
  if (live == live_.end() || live->second.incarnation != incarnation) return;
  live_.erase(live);
  Shard* shard = nullptr;
  Model* model = ModelOfNode(node, &shard);
  if (model == nullptr) return;
  shard->state = ShardState::kLost;
  shard->proven = false;
  shard->kind = kind;
  shard->reason = reason;
  shard->since = now;
  shard->bytes_done = 0;
  shard->numerics_id = NumericsId();
  for (Shard& each : model->shards) each.probes_failed = 0;
  actions_.changed.push_back(model->plan.model);
  Settle(*model, now);
}

void RouteTable::OnShardReport(const NodeId& node, Incarnation incarnation,
                               const ShardReport& report, Instant now) {
  auto live = live_.find(node);
  if (live == live_.end() || live->second.incarnation != incarnation) return;
  Shard* shard = nullptr;
  Model* model = ModelOfNode(node, &shard);
  if (model == nullptr || report.plan != model->plan.epoch) return;
  TakeReport(*model, *shard, report, now);
  Settle(*model, now);
}

void RouteTable::OnProbeDone(PlanEpoch plan, uint64_t number, const absl::Status& status,
                             Instant now) {
  for (auto& [name, model] : models_) {
    if (model.plan.epoch != plan || model.probe_number == 0 || model.probe_number != number) {
      continue;
    }
    model.probe_number = 0;
    if (status.ok()) {
      std::vector<size_t> ring;
      for (const auto& [index, incarnation] : model.probe_shards) {
        model.shards[index].proven = true;
        model.shards[index].probes_failed = 0;
        ring.push_back(index);
      }
      for (const Link& link : LinksOf(model, ring)) {
        auto state = links_.find(link);
        if (state != links_.end() && state->second.since <= model.probe_started) {
          state->second.sound = true;
        }
      }
      model.probe_failure = absl::OkStatus();
      actions_.changed.push_back(name);
    } else {
      Blame(model, status, now);
    }
    Settle(model, now);
    return;
  }
}

void RouteTable::OnLinkSuspected(const NodeId& from, const NodeId& to, Instant now) {
  Suspect({from, to}, now);
  for (auto& [name, model] : models_) {
    if (LoadedEnds(model, {from, to}).has_value()) Settle(model, now);
  }
}

void RouteTable::OnTick(Instant now) {
  std::vector<Link> over;
  for (auto& [link, state] : links_) {
    if (state.sound || now < state.since + options_.link_suspicion) continue;
    state.sound = true;
    over.push_back(link);
  }
  for (auto& [name, model] : models_) {
    for (const Link& link : over) {
      if (LoadedEnds(model, link).has_value()) actions_.changed.push_back(name);
    }
    Settle(model, now);
  }
}

// Lists all, which are empty once they are moved from.
RouteActions RouteTable::TakeActions() { return std::move(actions_); }

Instant RouteTable::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [name, model] : models_) {
    wake = std::min({wake, ProbeDue(model), ReplanDue(model), LinkReplanDue(model)});
  }
  for (const auto& [link, state] : links_) {
    if (!state.sound) wake = std::min(wake, state.since + options_.link_suspicion);
  }
  return wake;
}

absl::StatusOr<Route> RouteTable::RouteFor(const std::string& name, const RouteSuspects& avoid,
                                           Instant now, uint64_t affinity) {
  return HandOut(name, avoid, false, now, affinity);
}

absl::StatusOr<Route> RouteTable::RouteAnyway(const std::string& name, const RouteSuspects& avoid,
                                              Instant now, uint64_t affinity) {
  return HandOut(name, avoid, true, now, affinity);
}

RouteTable::Model* RouteTable::ModelOfNode(const NodeId& node, Shard** shard) {
  for (auto& [name, model] : models_) {
    for (Shard& candidate : model.shards) {
      if (candidate.planned.node != node) continue;
      *shard = &candidate;
      return &model;
    }
  }
  return nullptr;
}

absl::Status RouteTable::CheckNew(const Plan& plan) {
  if (plan.epoch <= highest_plan_) {
    return Invalid(
        absl::StrCat("plan epoch ", plan.epoch.value(), " is not above ", highest_plan_.value()));
  }
  for (const PlannedShard& planned : plan.shards) {
    Shard* shard = nullptr;
    const Model* model = ModelOfNode(planned.node, &shard);
    if (model != nullptr && model->plan.model != plan.model) {
      return Invalid(absl::StrCat(planned.node.value(), " holds ", shard->planned.layers.ToString(),
                                  " of ", model->plan.model));
    }
  }
  return absl::OkStatus();
}

// The model begins again with nothing loaded; what it has been through stays.
void RouteTable::Start(Model& model, const Plan& plan, Instant now) {
  highest_plan_ = plan.epoch;
  model.plan = plan;
  model.ranges = ShardsByRange(plan);
  model.shards.clear();
  model.late_rings.clear();
  model.probe_number = 0;
  model.probe_at = now;
  model.probe_failure = absl::OkStatus();
  model.replanning = false;
  model.replan_at = now;
  model.replan_refusal.clear();
  for (const PlannedShard& planned : plan.shards) {
    model.shards.push_back(Shard{.planned = planned, .since = now});
  }
  for (Shard& shard : model.shards) {
    if (live_.contains(shard.planned.node)) OrderLoad(model, shard, now);
  }
}

// What was held against the node's older lives is not held against this one.
void RouteTable::StartLife(const NodeId& node) {
  for (auto& [link, state] : links_) {
    if (link.first == node || link.second == node) state.sound = true;
  }
  for (auto& [name, model] : models_) {
    std::erase_if(model.unfit, [&node](const StagePeer& life) { return life.node == node; });
  }
}

// Whoever comes back may not come alone: a little patience saves the others from loading all.
void RouteTable::RetryReplans(Instant now) {
  for (auto& [name, model] : models_) {
    model.replan_at = std::min(model.replan_at, now + options_.replan_after);
  }
}

void RouteTable::TakeReport(Model& model, Shard& shard, const ShardReport& report, Instant now) {
  actions_.changed.push_back(model.plan.model);
  shard.bytes_done = report.bytes_done;
  shard.bytes_total = report.bytes_total;
  if (shard.state != report.state) shard.since = now;
  if (report.state != ShardState::kLoaded) shard.proven = false;
  if (report.state == ShardState::kLoaded && !shard.proven) model.probe_at = now;
  shard.state = report.state;
  shard.kind = FailureKind::kNone;
  shard.reason.clear();
  shard.numerics_id = report.state == ShardState::kLoaded ? report.numerics_id : NumericsId();
  shard.kv_pages = report.state == ShardState::kLoaded ? report.kv_pages : 0;
  shard.cost = report.state == ShardState::kLoaded ? report.cost : ShardCost();
  if (report.state == ShardState::kFailed) {
    shard.kind = FailureKindOf(report.failure);
    shard.reason = std::string(report.failure.message());
    model.unfit.insert({shard.planned.node, shard.incarnation});
  }
}

void RouteTable::OrderLoad(Model& model, Shard& shard, Instant now) {
  const LiveNode& live = live_.at(shard.planned.node);
  shard.state = ShardState::kLoading;
  shard.incarnation = live.incarnation;
  shard.bytes_done = 0;
  shard.bytes_total = shard.planned.bytes;
  shard.numerics_id = NumericsId();
  shard.proven = false;
  shard.kind = FailureKind::kNone;
  shard.reason.clear();
  shard.since = now;
  actions_.load.push_back({.node = shard.planned.node,
                           .incarnation = live.incarnation,
                           .plan = model.plan.epoch,
                           .shard_index = static_cast<size_t>(&shard - model.shards.data())});
}

// A probe has failed: the shards that had yet to prove themselves are to blame, unless there was
// just no room for it.
void RouteTable::Blame(Model& model, const absl::Status& status, Instant now) {
  const FailureDetail detail = FailureDetailOf(status);
  if (!detail.reporter.empty() && !detail.node.empty()) {
    Suspect({detail.reporter, detail.node}, now);
  }
  const bool no_room =
      detail.kind == FailureKind::kOverloaded || detail.kind == FailureKind::kKvExhausted;
  bool all_useless = true;
  for (const auto& [index, incarnation] : model.probe_shards) {
    Shard& shard = model.shards[index];
    if (shard.proven) continue;
    if (!no_room) ++shard.probes_failed;
    all_useless = all_useless && IsUseless(shard);
    model.probe_failure = status;
    actions_.changed.push_back(model.plan.model);
  }
  model.probe_at = now + (all_useless ? options_.probe_useless : options_.probe_retry);
}

void RouteTable::Suspect(const Link& link, Instant now) {
  std::erase_if(links_, [now](const auto& entry) {
    return entry.second.sound && entry.second.since + kLinkMemory < now;
  });
  LinkState& state =
      links_
          .try_emplace(link, LinkState{.sound = true, .since = now, .first = now, .probe_at = now})
          .first->second;
  state.since = now;
  if (!state.sound) return;
  state = LinkState{.sound = false, .since = now, .first = now, .probe_at = now};
}

Route RouteTable::MakeRoute(const Model& model, const std::vector<size_t>& ring) const {
  Route route{.plan = model.plan.epoch,
              .model = model.plan.model,
              .model_id = model.plan.model_id,
              .numerics_id = model.shards[ring.front()].numerics_id};
  for (const size_t index : ring) {
    const Shard& shard = model.shards[index];
    const LiveNode& live = live_.at(shard.planned.node);
    SL_CHECK(live.incarnation == shard.incarnation);
    route.stages.push_back(RouteStage{.node = shard.planned.node,
                                      .incarnation = shard.incarnation,
                                      .address = live.address,
                                      .layers = shard.planned.layers});
    const bool least = route.kv_pages_min == 0 || shard.kv_pages < route.kv_pages_min;
    if (shard.kv_pages > 0 && least) route.kv_pages_min = shard.kv_pages;
  }
  return route;
}

}  // namespace shardline
