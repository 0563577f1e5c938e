// Which ring a route or a probe takes.

#include <algorithm>

#include "base/status_macros.h"
#include "coordinator/routing/ring_choice.h"
#include "coordinator/routing/route_table.h"

namespace shardline {
namespace {

// Beside these the use a shard has had is nothing.
constexpr uint64_t kSuspectedLinkCost = 1'000'000;
constexpr uint64_t kForbiddenLinkCost = 1'000 * kSuspectedLinkCost;
constexpr uint64_t kSuspectedNodeCost = 1'000 * kForbiddenLinkCost;
constexpr uint64_t kUnprovenCost = 1'000;

// Rings remembered for their affinity, and how many routes a shard may be ahead for its sake.
constexpr size_t kLateRings = 1024;
constexpr uint32_t kLeadMax = 8;

// The ring as positions in `candidates`, back as shards.
std::optional<std::vector<size_t>> Named(const std::vector<std::vector<size_t>>& candidates,
                                         std::optional<std::vector<size_t>> ring) {
  if (!ring.has_value()) return std::nullopt;
  for (size_t r = 0; r < ring->size(); ++r) (*ring)[r] = candidates[r][(*ring)[r]];
  return ring;
}

}  // namespace

absl::StatusOr<Route> RouteTable::HandOut(const std::string& asked, const RouteSuspects& avoid,
                                          bool anyway, Instant now, uint64_t affinity) {
  SL_ASSIGN_OR_RETURN(const std::string name, NameOf(asked));
  Model& model = models_.at(name);
  if (model.state != ModelState::kReady) return WhyNotReady(name, now);
  for (const RouteSuspects::Link& link : avoid.links) {
    if (!links_.contains({link.from, link.to})) OnLinkSuspected(link.from, link.to, now);
  }
  const std::optional<std::vector<size_t>> ring = ServingRing(model, avoid, anyway, affinity);
  if (!ring.has_value()) return NoRing(model, avoid);
  ++routes_;
  for (const size_t index : *ring) model.shards[index].handed_out = routes_;
  Remember(model, *ring, affinity);
  return MakeRoute(model, *ring);
}

std::vector<StageCost> RouteTable::CostsOf(const Route& route) const {
  std::vector<StageCost> costs;
  auto model = models_.find(route.model);
  if (model == models_.end()) return {};
  for (const RouteStage& stage : route.stages) {
    const std::vector<Shard>& shards = model->second.shards;
    auto shard = std::find_if(shards.begin(), shards.end(), [&stage](const Shard& each) {
      return each.planned.node == stage.node && each.incarnation == stage.incarnation;
    });
    if (shard == shards.end()) return {};
    costs.push_back({.cost = shard->cost, .weight_bytes = shard->planned.bytes});
  }
  return costs;
}

std::optional<size_t> RouteTable::LateShard(const Model& model, size_t range,
                                            uint64_t affinity) const {
  if (affinity == 0 || model.late_rings.empty()) return std::nullopt;
  const auto& [late, ring] = model.late_rings[affinity % kLateRings];
  if (late != affinity || model.shards[ring[range]].lead >= kLeadMax) return std::nullopt;
  return ring[range];
}

void RouteTable::Remember(Model& model, const std::vector<size_t>& ring, uint64_t affinity) {
  for (size_t r = 0; r < ring.size(); ++r) {
    uint32_t least = ++model.shards[ring[r]].lead;
    for (const size_t index : model.ranges[r]) {
      if (Serves(model.shards[index])) least = std::min(least, model.shards[index].lead);
    }
    for (const size_t index : model.ranges[r]) {
      model.shards[index].lead -= std::min(least, model.shards[index].lead);
    }
  }
  if (affinity == 0) return;
  model.late_rings.resize(kLateRings);
  model.late_rings[affinity % kLateRings] = {affinity, ring};
}

std::optional<std::vector<size_t>> RouteTable::ServingRing(const Model& model,
                                                           const RouteSuspects& avoid, bool anyway,
                                                           uint64_t affinity) const {
  const auto is_suspect = [&avoid](const Shard& shard) {
    const StagePeer life{shard.planned.node, shard.incarnation};
    return std::find(avoid.nodes.begin(), avoid.nodes.end(), life) != avoid.nodes.end();
  };
  std::vector<std::vector<size_t>> candidates;
  std::vector<std::vector<RingShard>> ranges;
  for (const std::vector<size_t>& range : model.ranges) {
    std::vector<size_t> usable;
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      if (Serves(shard) && (anyway || !is_suspect(shard))) usable.push_back(index);
    }
    std::stable_sort(usable.begin(), usable.end(), [&model](size_t a, size_t b) {
      return model.shards[a].handed_out < model.shards[b].handed_out;
    });
    if (const auto late = LateShard(model, candidates.size(), affinity)) {
      std::stable_partition(usable.begin(), usable.end(),
                            [&late](size_t index) { return index == *late; });
    }
    std::vector<RingShard> shards;
    for (const size_t index : usable) {
      const Shard& shard = model.shards[index];
      const uint64_t doubt = is_suspect(shard) ? kSuspectedNodeCost : 0;
      shards.push_back({.node = shard.planned.node, .cost = shards.size() + doubt});
    }
    candidates.push_back(std::move(usable));
    ranges.push_back(std::move(shards));
  }
  return Named(
      candidates,
      CheapestRing(ranges, [&](const NodeId& from, const NodeId& to) -> std::optional<uint64_t> {
        if (!IsSuspected({from, to})) return 0;
        const RouteSuspects::Link link{from, to};
        const bool forbidden =
            std::find(avoid.links.begin(), avoid.links.end(), link) != avoid.links.end();
        if (forbidden && !anyway) return std::nullopt;
        return forbidden ? kForbiddenLinkCost : kSuspectedLinkCost;
      }));
}

std::optional<std::vector<size_t>> RouteTable::ProbeRing(const Model& model, Instant now) const {
  std::vector<std::vector<size_t>> candidates;
  for (const std::vector<size_t>& range : model.ranges) {
    candidates.emplace_back();
    for (const size_t index : range) {
      if (model.shards[index].state == ShardState::kLoaded) candidates.back().push_back(index);
    }
    if (candidates.back().empty()) return std::nullopt;
  }
  const auto must_pass = [&](size_t wanted) {
    for (std::vector<size_t>& range : candidates) {
      if (std::find(range.begin(), range.end(), wanted) != range.end()) range = {wanted};
    }
  };
  // The shard to prove: the one that has failed the least.
  std::optional<size_t> unproven;
  for (size_t index = 0; index < model.shards.size(); ++index) {
    const Shard& shard = model.shards[index];
    if (shard.state != ShardState::kLoaded || shard.proven) continue;
    if (!unproven || shard.probes_failed < model.shards[*unproven].probes_failed) unproven = index;
  }
  if (unproven.has_value() && model.probe_at <= now) {
    must_pass(*unproven);
  } else {
    auto due = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
      return !entry.second.sound && entry.second.probe_at <= now &&
             LoadedEnds(model, entry.first).has_value();
    });
    if (due == links_.end()) return std::nullopt;
    const auto [from, to] = *LoadedEnds(model, due->first);
    must_pass(from);
    must_pass(to);
  }
  std::vector<std::vector<RingShard>> ranges;
  for (const std::vector<size_t>& range : candidates) {
    ranges.emplace_back();
    for (const size_t index : range) {
      const Shard& shard = model.shards[index];
      const uint64_t doubt = static_cast<uint64_t>(1 + shard.probes_failed) * kUnprovenCost;
      ranges.back().push_back({.node = shard.planned.node, .cost = shard.proven ? 0 : doubt});
    }
  }
  return Named(
      candidates,
      CheapestRing(ranges, [this](const NodeId& from, const NodeId& to) -> std::optional<uint64_t> {
        return IsSuspected({from, to}) ? kSuspectedLinkCost : 0;
      }));
}

bool RouteTable::HasSoundRing(const Model& model) const {
  std::vector<std::vector<RingShard>> ranges;
  for (const std::vector<size_t>& range : model.ranges) {
    ranges.emplace_back();
    for (const size_t index : range) {
      if (model.shards[index].state != ShardState::kLoaded) continue;
      ranges.back().push_back({.node = model.shards[index].planned.node});
    }
  }
  return CheapestRing(ranges,
                      [this](const NodeId& from, const NodeId& to) -> std::optional<uint64_t> {
                        if (IsSuspected({from, to})) return std::nullopt;
                        return 0;
                      })
      .has_value();
}

bool RouteTable::IsSuspected(const Link& link) const {
  auto found = links_.find(link);
  return found != links_.end() && !found->second.sound;
}

std::optional<std::pair<size_t, size_t>> RouteTable::LoadedEnds(const Model& model,
                                                                const Link& link) const {
  const size_t count = model.ranges.size();
  if (count < 2) return std::nullopt;
  const auto find = [&model](const std::vector<size_t>& range, const NodeId& node) {
    auto found = std::find_if(range.begin(), range.end(), [&](size_t index) {
      return model.shards[index].planned.node == node &&
             model.shards[index].state == ShardState::kLoaded;
    });
    return found == range.end() ? std::nullopt : std::optional<size_t>(*found);
  };
  for (size_t r = 0; r < count; ++r) {
    const std::optional<size_t> from = find(model.ranges[r], link.first);
    if (!from.has_value()) continue;
    const std::optional<size_t> to = find(model.ranges[(r + 1) % count], link.second);
    if (to.has_value()) return std::pair(*from, *to);
  }
  return std::nullopt;
}

std::vector<RouteTable::Link> RouteTable::LinksOf(const Model& model,
                                                  const std::vector<size_t>& ring) const {
  std::vector<Link> links;
  for (size_t i = 0; ring.size() > 1 && i < ring.size(); ++i) {
    links.emplace_back(model.shards[ring[i]].planned.node,
                       model.shards[ring[(i + 1) % ring.size()]].planned.node);
  }
  return links;
}

}  // namespace shardline
