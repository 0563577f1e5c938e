// Where a model stands, and what follows: probes and questions for another plan.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/routing/route_table.h"

namespace shardline {

void RouteTable::Settle(Model& model, Instant now) {
  SettleNumerics(model);
  ForgetLostProbe(model);
  const ModelState state = StateOf(model);
  if (state != model.state) {
    model.state = state;
    model.since = now;
    actions_.changed.push_back(model.plan.model);
  }
  if (state == ModelState::kReady) {
    model.was_ready = true;
    model.replan_refusal.clear();
  }
  StartProbe(model, now);
  AskReplan(model, now);
}

// Bits must be equal along a route: a shard that is proven sets the numerics, else the first head.
void RouteTable::SettleNumerics(Model& model) {
  const Shard* first = nullptr;
  for (const Shard& shard : model.shards) {
    if (shard.state == ShardState::kLoaded && shard.proven) {
      first = &shard;
      break;
    }
    if (shard.state == ShardState::kLoaded && shard.planned.is_head && first == nullptr) {
      first = &shard;
    }
  }
  if (first == nullptr) return;
  for (Shard& shard : model.shards) {
    if (shard.numerics_id.empty()) continue;
    if (shard.numerics_id == first->numerics_id) {
      if (shard.state == ShardState::kFailed) shard.state = ShardState::kLoaded;
      continue;
    }
    if (shard.state != ShardState::kLoaded) continue;
    shard.state = ShardState::kFailed;
    shard.kind = FailureKind::kIncompatibleRecipe;
    shard.reason =
        absl::StrCat("computes as ", shard.numerics_id.value(),
                     first->planned.is_head ? ", the head on " : ", the proven shard on ",
                     first->planned.node.value(), " as ", first->numerics_id.value());
    model.unfit.insert({shard.planned.node, shard.incarnation});
  }
}

// A probe whose ring has lost a shard since says nothing about those that are there now.
void RouteTable::ForgetLostProbe(Model& model) {
  if (model.probe_number == 0) return;
  const bool whole = std::all_of(
      model.probe_shards.begin(), model.probe_shards.end(), [&model](const auto& probed) {
        const Shard& shard = model.shards[probed.first];
        return shard.state == ShardState::kLoaded && shard.incarnation == probed.second;
      });
  if (!whole) model.probe_number = 0;
}

void RouteTable::StartProbe(Model& model, Instant now) {
  if (model.probe_number != 0) return;
  const std::optional<std::vector<size_t>> ring = ProbeRing(model, now);
  if (!ring.has_value()) return;
  model.probe_number = ++probes_;
  model.probe_started = now;
  model.probe_shards.clear();
  for (const size_t index : *ring) {
    model.probe_shards.emplace_back(index, model.shards[index].incarnation);
  }
  for (const Link& link : LinksOf(model, *ring)) {
    auto state = links_.find(link);
    if (state != links_.end()) state->second.probe_at = now + options_.probe_retry;
  }
  actions_.probe.push_back(
      {.plan = model.plan.epoch, .number = model.probe_number, .route = MakeRoute(model, *ring)});
}

ModelState RouteTable::StateOf(const Model& model) const {
  bool all_serve = true;
  bool all_loaded = true;
  bool any_lost = false;
  for (const std::vector<size_t>& range : model.ranges) {
    const auto any = [&](auto&& is) {
      return std::any_of(range.begin(), range.end(),
                         [&](size_t index) { return is(model.shards[index]); });
    };
    if (any([](const Shard& shard) { return Serves(shard); })) continue;
    all_serve = false;
    const bool may_serve = any([this](const Shard& shard) {
      return shard.state == ShardState::kLoaded && !IsUseless(shard);
    });
    if (may_serve) continue;
    all_loaded = false;
    const bool may_load = any([](const Shard& shard) {
      return shard.state != ShardState::kFailed && shard.state != ShardState::kLoaded;
    });
    if (!may_load) return ModelState::kFailed;
    any_lost = any_lost || any([](const Shard& s) { return s.state == ShardState::kLost; });
  }
  if (all_serve) return ModelState::kReady;
  if (all_loaded) return ModelState::kProbing;
  return any_lost || model.was_ready ? ModelState::kDegraded : ModelState::kLoading;
}

bool RouteTable::Serves(const Shard& shard) {
  return shard.state == ShardState::kLoaded && shard.proven;
}

bool RouteTable::IsLost(const Model& model, const std::vector<size_t>& range) {
  return std::none_of(range.begin(), range.end(), [&model](size_t index) {
    const ShardState state = model.shards[index].state;
    return state == ShardState::kLoading || state == ShardState::kLoaded;
  });
}

// When a range without a live shard has been so for long enough. A model that has never been
// ready waits for its operator where a shard cannot load.
Instant RouteTable::RangeDue(const Model& model, const std::vector<size_t>& range) const {
  if (!IsLost(model, range)) return Instant::InfiniteFuture();
  Instant dead_since;
  bool any_waiting = false;
  bool any_gone = false;
  for (const size_t index : range) {
    const Shard& shard = model.shards[index];
    dead_since = std::max(dead_since, shard.since);
    any_waiting = any_waiting || shard.state == ShardState::kWaiting;
    any_gone = any_gone || shard.state == ShardState::kLost ||
               (shard.state == ShardState::kFailed && model.was_ready);
  }
  if (any_gone) return dead_since + options_.replan_after;
  return any_waiting ? dead_since + options_.join_patience : Instant::InfiniteFuture();
}

Instant RouteTable::ReplanDue(const Model& model) const {
  // No range of a ready model is lost.
  if (model.replanning || model.state == ModelState::kReady) return Instant::InfiniteFuture();
  Instant due = Instant::InfiniteFuture();
  for (const std::vector<size_t>& range : model.ranges) {
    due = std::min(due, RangeDue(model, range));
  }
  return std::max(due, model.replan_at);
}

Instant RouteTable::LinkReplanDue(const Model& model) const {
  if (model.replanning || links_.empty()) return Instant::InfiniteFuture();
  // A lost range is asked for first; until then there is nothing to wake for on a link's account.
  const bool any_lost =
      std::any_of(model.ranges.begin(), model.ranges.end(),
                  [&model](const std::vector<size_t>& range) { return IsLost(model, range); });
  if (any_lost) return Instant::InfiniteFuture();
  Instant due = Instant::InfiniteFuture();
  for (const auto& [link, state] : links_) {
    if (state.sound || !LoadedEnds(model, link).has_value()) continue;
    due = std::min(due, state.first + options_.link_replan_after);
  }
  if (due == Instant::InfiniteFuture() || HasSoundRing(model)) return Instant::InfiniteFuture();
  return std::max(due, model.link_replan_at);
}

Instant RouteTable::ProbeDue(const Model& model) const {
  if (model.probe_number != 0) return Instant::InfiniteFuture();
  const bool whole = std::none_of(
      model.ranges.begin(), model.ranges.end(), [&model](const std::vector<size_t>& range) {
        return std::none_of(range.begin(), range.end(), [&model](size_t index) {
          return model.shards[index].state == ShardState::kLoaded;
        });
      });
  if (!whole) return Instant::InfiniteFuture();
  Instant due = Instant::InfiniteFuture();
  for (const Shard& shard : model.shards) {
    if (shard.state == ShardState::kLoaded && !shard.proven) due = model.probe_at;
  }
  for (const auto& [link, state] : links_) {
    if (state.sound || !LoadedEnds(model, link).has_value()) continue;
    due = std::min(due, state.probe_at);
  }
  return due;
}

void RouteTable::AskReplan(Model& model, Instant now) {
  std::vector<LayerRange> lost;
  std::vector<std::string> why;
  for (const std::vector<size_t>& range : model.ranges) {
    if (!IsLost(model, range)) continue;
    lost.push_back(model.shards[range.front()].planned.layers);
    why.push_back(absl::StrCat(lost.back().ToString(), " have no live node"));
  }
  if (model.replanning && !model.replanning_for_link && lost.empty()) {
    model.replanning = false;  // The lost one came back first.
  }
  const bool for_range = !lost.empty() && ReplanDue(model) <= now;
  const bool for_link = lost.empty() && LinkReplanDue(model) <= now;
  if (!for_range && !for_link) return;
  RouteActions::Replan ask{.model = model.plan.model, .plan = model.plan.epoch, .lost = lost};
  ask.avoid.nodes.assign(model.unfit.begin(), model.unfit.end());
  for (const auto& [link, state] : links_) {
    if (state.sound) continue;
    ask.avoid.links.push_back({.from = link.first, .to = link.second});
    if (!for_link || !LoadedEnds(model, link).has_value()) continue;
    why.push_back(
        absl::StrCat("no ring without the link ", link.first.value(), " -> ", link.second.value()));
  }
  ask.reason = absl::StrJoin(why, ", ");
  model.replanning = true;
  model.replanning_for_link = for_link;
  if (for_link) model.link_replan_at = now + options_.link_replan_interval;
  actions_.replan.push_back(std::move(ask));
}

}  // namespace shardline
