// What the table says to people, and why it has no route.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "coordinator/routing/route_table.h"

namespace shardline {
namespace {

std::string Ago(absl::Duration d) {
  return absl::StrFormat("%.1f s ago", absl::ToDoubleSeconds(d));
}

std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", "; "}}); }

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

bool RouteTable::any_ready() const {
  return std::any_of(models_.begin(), models_.end(),
                     [](const auto& entry) { return entry.second.state == ModelState::kReady; });
}

std::vector<ModelView> RouteTable::List(Instant now) const {
  std::vector<ModelView> views;
  for (const auto& [name, model] : models_) {
    ModelView view{.plan = model.plan, .state = model.state};
    if (model.state != ModelState::kReady) view.reason = absl::StrJoin(Missing(model, now), "; ");
    for (const Shard& shard : model.shards) {
      if (view.numerics_id.empty() && shard.state == ShardState::kLoaded) {
        view.numerics_id = shard.numerics_id;
      }
      view.shards.push_back(ShardView{.shard = shard.planned,
                                      .state = shard.state,
                                      .incarnation = shard.incarnation,
                                      .proven = shard.proven,
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
    const std::vector<std::string> lines =
        model.state == ModelState::kReady ? MissingReplicas(model, now) : Missing(model, now);
    for (const std::string& line : lines) problems.push_back(absl::StrCat(name, ": ", line));
  }
  return problems;
}

absl::Status RouteTable::WhyNotReady(const std::string& name, Instant now) const {
  auto found = models_.find(name);
  if (found == models_.end()) {
    return absl::NotFoundError(absl::StrCat("no model ", name, " is in service"));
  }
  const Model& model = found->second;
  if (model.state == ModelState::kReady) return absl::OkStatus();
  FailureDetail detail{.kind = FailureKind::kOverloaded, .retry_after = options_.retry_after};
  for (const std::vector<size_t>& range : model.ranges) {
    const bool live = std::any_of(range.begin(), range.end(), [&model](size_t index) {
      return model.shards[index].state == ShardState::kLoaded;
    });
    if (live || !detail.node.empty()) continue;
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      if (shard.state != ShardState::kLost && shard.state != ShardState::kFailed) continue;
      detail.node = shard.planned.node;
      detail.layers = shard.planned.layers;
      if (shard.kind != FailureKind::kNone) detail.kind = shard.kind;
      break;
    }
  }
  return MakeFailure(detail,
                     absl::StrCat(name, model.state == ModelState::kFailed ? " has " : " is ",
                                  std::string(ModelStateName(model.state)), ": ",
                                  absl::StrJoin(Missing(model, now), "; ")));
}

absl::StatusOr<std::string> RouteTable::NameOf(const std::string& name) const {
  if (!name.empty()) {
    if (models_.contains(name)) return name;
    return absl::NotFoundError(absl::StrCat("no model ", name, " is in service"));
  }
  if (models_.empty()) return absl::NotFoundError("no model is in service");
  if (models_.size() == 1) return models_.begin()->first;
  std::vector<std::string> names;
  std::vector<std::string> ready;
  for (const auto& [key, model] : models_) {
    names.push_back(key);
    if (model.state == ModelState::kReady) ready.push_back(key);
  }
  if (ready.size() == 1) return ready.front();
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat("name a model: ", absl::StrJoin(names, ", ")));
}

// The first range that the suspects leave empty, or the links of which none can do without.
absl::Status RouteTable::NoRing(const Model& model, const RouteSuspects& avoid) const {
  FailureDetail detail{.kind = FailureKind::kOverloaded, .retry_after = options_.retry_after};
  for (const std::vector<size_t>& range : model.ranges) {
    std::vector<std::string> suspects;
    bool any_other = false;
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      if (!Serves(shard)) continue;
      const StagePeer life{shard.planned.node, shard.incarnation};
      const bool suspected =
          std::find(avoid.nodes.begin(), avoid.nodes.end(), life) != avoid.nodes.end();
      any_other = any_other || !suspected;
      if (suspected) suspects.push_back(life.node.value());
    }
    if (any_other) continue;
    const PlannedShard& shard = model.shards[range.front()].planned;
    detail.node = NodeId(suspects.front());
    detail.layers = shard.layers;
    return MakeFailure(detail, absl::StrCat(model.plan.model, " has no route around its suspects: ",
                                            shard.layers.ToString(), " live on no other node than ",
                                            absl::StrJoin(suspects, ", ")));
  }
  std::vector<std::string> links;
  for (const RouteSuspects::Link& link : avoid.links) {
    if (!IsSuspected({link.from, link.to})) continue;
    links.push_back(absl::StrCat(link.from.value(), " -> ", link.to.value()));
  }
  return MakeFailure(detail, absl::StrCat(model.plan.model, " has no ring without the links ",
                                          absl::StrJoin(links, ", ")));
}

std::string RouteTable::StandingOf(const Shard& shard, Instant now) const {
  switch (shard.state) {
    case ShardState::kWaiting:
      return "the node has not joined";
    case ShardState::kLoading: {
      const double total = static_cast<double>(std::max<uint64_t>(shard.bytes_total, 1));
      return absl::StrFormat("loading, %.0f %%",
                             100.0 * std::min(1.0, static_cast<double>(shard.bytes_done) / total));
    }
    case ShardState::kFailed:
      return shard.reason;
    case ShardState::kLost:
      return absl::StrCat(shard.reason, " ", Ago(now - shard.since));
    case ShardState::kLoaded:
      break;
  }
  if (shard.probes_failed == 0) return "waits for its first token";
  return absl::StrCat(std::min(shard.probes_failed, options_.probes_max), " of ",
                      options_.probes_max, " probes in a row failed");
}

// What keeps the model from being ready, a phrase each.
std::vector<std::string> RouteTable::Missing(const Model& model, Instant now) const {
  std::vector<std::string> missing;
  int probes_failed = 0;
  bool any_lost = false;
  for (const std::vector<size_t>& range : model.ranges) {
    any_lost = any_lost || IsLost(model, range);
    const bool loaded = std::any_of(range.begin(), range.end(), [&model](size_t index) {
      return model.shards[index].state == ShardState::kLoaded;
    });
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      probes_failed = std::max(probes_failed, shard.probes_failed);
      // Of a model that has failed, what still loads is beside the point.
      if (model.state == ModelState::kFailed && shard.state == ShardState::kLoading) continue;
      if (loaded) continue;
      missing.push_back(absl::StrCat(shard.planned.layers.ToString(), " on ",
                                     shard.planned.node.value(), ": ", StandingOf(shard, now)));
    }
  }
  if (any_lost && !model.replan_refusal.empty()) {
    missing.push_back(
        absl::StrCat("and they cannot be placed again: ", OneLine(model.replan_refusal)));
  }
  if (!missing.empty() || model.state == ModelState::kReady) return missing;
  const std::string why(model.probe_failure.message());
  if (model.probe_failure.ok()) return {"all layers are loaded, the first token is on its way"};
  if (probes_failed == 0) return {absl::StrCat("all layers are loaded, but a probe failed: ", why)};
  return {absl::StrCat("all layers are loaded, but ", std::min(probes_failed, options_.probes_max),
                       " of ", options_.probes_max, " probes in a row failed: ", why)};
}

// Of a model that is ready: ranges with fewer nodes than they should have.
std::vector<std::string> RouteTable::MissingReplicas(const Model& model, Instant now) const {
  std::vector<std::string> lines;
  for (const std::vector<size_t>& range : model.ranges) {
    int32_t serving = 0;
    std::vector<std::string> others;
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      if (Serves(shard)) {
        ++serving;
      } else {
        others.push_back(absl::StrCat(shard.planned.node.value(), ": ", StandingOf(shard, now)));
      }
    }
    if (serving >= model.plan.replicas) continue;
    if (static_cast<int32_t>(range.size()) < model.plan.replicas) {
      others.push_back("no other node had room");
    }
    lines.push_back(absl::StrCat(model.shards[range.front()].planned.layers.ToString(), " have ",
                                 serving, " of ", model.plan.replicas,
                                 " replicas: ", absl::StrJoin(others, ", ")));
  }
  return lines;
}

}  // namespace shardline
