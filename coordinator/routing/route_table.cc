#include "coordinator/routing/route_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

std::string Ago(absl::Duration d) {
  return absl::StrFormat("%.1f s ago", absl::ToDoubleSeconds(d));
}

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

std::string_view ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "loading";
    case ModelState::kProbing:
      return "probing";
    case ModelState::kReady:
      return "ready";
    case ModelState::kDegraded:
      return "degraded";
    case ModelState::kFailed:
      return "failed";
  }
  return "unknown";
}

std::string_view ShardStateName(ShardState state) {
  switch (state) {
    case ShardState::kWaiting:
      return "waiting";
    case ShardState::kLoading:
      return "loading";
    case ShardState::kLoaded:
      return "loaded";
    case ShardState::kFailed:
      return "failed";
    case ShardState::kLost:
      return "lost";
  }
  return "unknown";
}

absl::Status RouteTable::OnPlan(const Plan& plan, Instant now) {
  SL_RETURN_IF_ERROR(ValidatePlan(plan));
  if (models_.contains(plan.model)) {
    return Invalid(absl::StrCat(plan.model, " is in service already; unload it first"));
  }
  if (plan.epoch <= highest_plan_) {
    return Invalid(
        absl::StrCat("plan epoch ", plan.epoch.value(), " is not above ", highest_plan_.value()));
  }
  for (const PlannedShard& planned : plan.shards) {
    Shard* shard = nullptr;
    if (const Model* model = ModelOfNode(planned.node, &shard)) {
      return Invalid(absl::StrCat(planned.node.value(), " holds ", shard->planned.layers.ToString(),
                                  " of ", model->plan.model));
    }
  }
  highest_plan_ = plan.epoch;
  Model& model = models_[plan.model];
  model.plan = plan;
  model.since = now;
  for (const PlannedShard& planned : plan.shards) {
    model.shards.push_back(Shard{.planned = planned, .since = now});
  }
  for (Shard& shard : model.shards) {
    if (live_.contains(shard.planned.node)) OrderLoad(model, shard, now);
  }
  Settle(model, now);
  return absl::OkStatus();
}

absl::Status RouteTable::OnUnload(const std::string& name, Instant) {
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
  return absl::OkStatus();
}

void RouteTable::OnNodeReady(const NodeId& node, Incarnation incarnation,
                             const std::string& address, const std::optional<ShardReport>& holds,
                             Instant now) {
  live_[node] = LiveNode{.incarnation = incarnation, .address = address};
  Shard* shard = nullptr;
  Model* model = ModelOfNode(node, &shard);
  const bool holds_planned =
      model != nullptr && holds.has_value() && holds->plan == model->plan.epoch;
  if (holds.has_value() && holds->plan != PlanEpoch() && !holds_planned) {
    actions_.unload.push_back({.node = node, .incarnation = incarnation, .plan = holds->plan});
  }
  if (model == nullptr) return;
  const bool same_life = shard->incarnation == incarnation && shard->state != ShardState::kLost;
  if (!same_life) model->probes_failed = 0;
  if (holds_planned && holds->state != ShardState::kFailed) {
    // A probe that ran on the older incarnation proves nothing about this one.
    if (!same_life) shard->state = ShardState::kWaiting;
    shard->incarnation = incarnation;
    if (!same_life) Settle(*model, now);
    TakeReport(*model, *shard, *holds, now);
  } else {
    OrderLoad(*model, *shard, now);
  }
  Settle(*model, now);
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
  shard->kind = kind;
  shard->reason = reason;
  shard->since = now;
  shard->bytes_done = 0;
  shard->numerics_id = NumericsId();
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
    if (model.plan.epoch != plan || model.state != ModelState::kProbing ||
        model.probe_number != number) {
      continue;
    }
    model.probe_number = 0;
    model.since = now;
    actions_.changed.push_back(name);
    if (status.ok()) {
      model.state = ModelState::kReady;
      model.was_ready = true;
      model.probes_failed = 0;
      return;
    }
    ++model.probes_failed;
    model.probe_failure = status;
    if (model.probes_failed >= options_.probes_max) {
      model.state = ModelState::kFailed;
    } else {
      model.probe_at = now + options_.probe_retry;
    }
    return;
  }
}

void RouteTable::OnTick(Instant now) {
  for (auto& [name, model] : models_) {
    if (model.state == ModelState::kProbing && now >= model.probe_at) StartProbe(model, now);
  }
}

RouteActions RouteTable::TakeActions() { return std::exchange(actions_, RouteActions()); }

Instant RouteTable::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [name, model] : models_) wake = std::min(wake, model.probe_at);
  return wake;
}

absl::StatusOr<Route> RouteTable::RouteFor(const std::string& name, Instant now) const {
  const Model* model = nullptr;
  if (!name.empty()) {
    auto found = models_.find(name);
    if (found == models_.end()) {
      return absl::NotFoundError(absl::StrCat("no model ", name, " is in service"));
    }
    model = &found->second;
  } else {
    if (models_.empty()) return absl::NotFoundError("no model is in service");
    int ready_count = 0;
    std::vector<std::string> names;
    for (const auto& [key, candidate] : models_) {
      names.push_back(key);
      if (candidate.state != ModelState::kReady) continue;
      ++ready_count;
      model = &candidate;
    }
    if (ready_count == 0 && models_.size() == 1) model = &models_.begin()->second;
    if (ready_count > 1 || model == nullptr) {
      return Invalid(absl::StrCat("name a model: ", absl::StrJoin(names, ", ")));
    }
  }
  if (model->state == ModelState::kReady) return MakeRoute(*model);

  FailureDetail detail{.kind = FailureKind::kOverloaded, .retry_after = options_.retry_after};
  for (const Shard& shard : model->shards) {
    if (shard.state != ShardState::kLost && shard.state != ShardState::kFailed) continue;
    detail.node = shard.planned.node;
    detail.layers = shard.planned.layers;
    if (shard.kind != FailureKind::kNone) detail.kind = shard.kind;
    break;
  }
  return MakeFailure(detail, absl::StrCat(model->plan.model,
                                          model->state == ModelState::kFailed ? " has " : " is ",
                                          std::string(ModelStateName(model->state)), ": ",
                                          absl::StrJoin(Missing(*model, now), "; ")));
}

std::vector<ModelView> RouteTable::List(Instant now) const {
  std::vector<ModelView> views;
  for (const auto& [name, model] : models_) {
    ModelView view{.plan = model.plan, .state = model.state};
    if (model.state != ModelState::kReady) view.reason = absl::StrJoin(Missing(model, now), "; ");
    view.numerics_id = model.shards.front().numerics_id;
    for (const Shard& shard : model.shards) {
      view.shards.push_back(ShardView{.shard = shard.planned,
                                      .state = shard.state,
                                      .incarnation = shard.incarnation,
                                      .bytes_done = shard.bytes_done,
                                      .bytes_total = shard.bytes_total,
                                      .reason = shard.reason});
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<std::string> RouteTable::Problems(Instant now) const {
  std::vector<std::string> problems;
  for (const auto& [name, model] : models_) {
    if (model.state == ModelState::kReady) continue;
    for (const std::string& line : Missing(model, now)) {
      problems.push_back(absl::StrCat(name, ": ", line));
    }
  }
  return problems;
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

void RouteTable::TakeReport(Model& model, Shard& shard, const ShardReport& report, Instant now) {
  actions_.changed.push_back(model.plan.model);
  shard.bytes_done = report.bytes_done;
  shard.bytes_total = report.bytes_total;
  if (shard.state != report.state) shard.since = now;
  shard.state = report.state;
  shard.kind = FailureKind::kNone;
  shard.reason.clear();
  shard.numerics_id = report.state == ShardState::kLoaded ? report.numerics_id : NumericsId();
  if (report.state == ShardState::kFailed) {
    shard.kind = FailureKindOf(report.failure);
    shard.reason = Text(report.failure);
  }
}

void RouteTable::OrderLoad(Model& model, Shard& shard, Instant now) {
  const LiveNode& live = live_.at(shard.planned.node);
  shard.state = ShardState::kLoading;
  shard.incarnation = live.incarnation;
  shard.bytes_done = 0;
  shard.bytes_total = shard.planned.bytes;
  shard.numerics_id = NumericsId();
  shard.kind = FailureKind::kNone;
  shard.reason.clear();
  shard.since = now;
  actions_.load.push_back({.node = shard.planned.node,
                           .incarnation = live.incarnation,
                           .plan = model.plan.epoch,
                           .shard_index = static_cast<size_t>(&shard - model.shards.data())});
}

// Where the model stands, from where its shards stand.
void RouteTable::Settle(Model& model, Instant now) {
  // Bits must be equal along a route: the head's numerics are everybody's.
  const Shard& head = model.shards.front();
  for (Shard& shard : model.shards) {
    if (head.state != ShardState::kLoaded || shard.numerics_id.empty()) continue;
    if (shard.numerics_id == head.numerics_id) {
      // Refused beside another head, right beside this one.
      if (shard.state == ShardState::kFailed) shard.state = ShardState::kLoaded;
      continue;
    }
    if (shard.state != ShardState::kLoaded) continue;
    shard.state = ShardState::kFailed;
    shard.kind = FailureKind::kIncompatibleRecipe;
    shard.reason = absl::StrCat("computes as ", shard.numerics_id.value(), ", the head on ",
                                head.planned.node.value(), " as ", head.numerics_id.value());
  }
  const auto any = [&model](ShardState state) {
    return std::any_of(model.shards.begin(), model.shards.end(),
                       [state](const Shard& shard) { return shard.state == state; });
  };
  ModelState state = model.was_ready ? ModelState::kDegraded : ModelState::kLoading;
  if (any(ShardState::kFailed)) {
    state = ModelState::kFailed;
  } else if (any(ShardState::kLost)) {
    state = ModelState::kDegraded;
  } else if (!any(ShardState::kWaiting) && !any(ShardState::kLoading)) {
    // Everything is loaded: ready or failing probes as before, or on the way to a probe.
    const bool settled =
        model.state == ModelState::kReady || model.state == ModelState::kProbing ||
        (model.state == ModelState::kFailed && model.probes_failed >= options_.probes_max);
    if (!settled) StartProbe(model, now);
    return;
  }
  model.probe_number = 0;
  model.probe_at = Instant::InfiniteFuture();
  if (state == ModelState::kDegraded) model.probes_failed = 0;
  if (model.state == state) return;
  model.state = state;
  model.since = now;
  actions_.changed.push_back(model.plan.model);
}

void RouteTable::StartProbe(Model& model, Instant now) {
  if (model.state != ModelState::kProbing) model.since = now;
  model.state = ModelState::kProbing;
  model.probe_at = Instant::InfiniteFuture();
  model.probe_number = ++probes_;
  actions_.probe.push_back(
      {.plan = model.plan.epoch, .number = model.probe_number, .route = MakeRoute(model)});
  actions_.changed.push_back(model.plan.model);
}

Route RouteTable::MakeRoute(const Model& model) const {
  Route route{.plan = model.plan.epoch,
              .model = model.plan.model,
              .model_id = model.plan.model_id,
              .numerics_id = model.shards.front().numerics_id};
  for (const Shard& shard : model.shards) {
    const LiveNode& live = live_.at(shard.planned.node);
    SL_CHECK(live.incarnation == shard.incarnation);
    route.stages.push_back(RouteStage{.node = shard.planned.node,
                                      .incarnation = shard.incarnation,
                                      .address = live.address,
                                      .layers = shard.planned.layers});
  }
  return route;
}

// What keeps the model from being ready, a phrase each.
std::vector<std::string> RouteTable::Missing(const Model& model, Instant now) const {
  std::vector<std::string> missing;
  for (const Shard& shard : model.shards) {
    // Of a model that has failed, what still loads is beside the point.
    if (model.state == ModelState::kFailed && shard.state == ShardState::kLoading) continue;
    const std::string where =
        absl::StrCat(shard.planned.layers.ToString(), " on ", shard.planned.node.value(), ": ");
    switch (shard.state) {
      case ShardState::kWaiting:
        missing.push_back(absl::StrCat(where, "the node has not joined"));
        break;
      case ShardState::kLoading: {
        const double total = static_cast<double>(std::max<uint64_t>(shard.bytes_total, 1));
        missing.push_back(
            absl::StrFormat("%sloading, %.0f %%", where,
                            100.0 * std::min(1.0, static_cast<double>(shard.bytes_done) / total)));
        break;
      }
      case ShardState::kFailed:
        missing.push_back(absl::StrCat(where, shard.reason));
        break;
      case ShardState::kLost:
        missing.push_back(absl::StrCat(where, shard.reason, " ", Ago(now - shard.since)));
        break;
      case ShardState::kLoaded:
        break;
    }
  }
  if (!missing.empty() || model.state == ModelState::kReady) return missing;
  if (model.probes_failed == 0) return {"all layers are loaded, the first token is on its way"};
  return {absl::StrCat("all layers are loaded, but ", model.probes_failed, " of ",
                       options_.probes_max,
                       " probes in a row failed: ", Text(model.probe_failure))};
}

}  // namespace shardline
