#include "coordinator/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "coordinator/placement/layer_cut.h"

namespace shardline {
namespace {

constexpr int kSubsetsMax = 256;
constexpr int kOrdersMax = 5040;      // Of seven nodes behind a head.
constexpr double kNoiseFactor = 1.5;  // Speeds of one device that are nearer than this are equal.
constexpr int32_t kReplicasMax = 64;

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

absl::Status CheckInputs(const ModelCost& model, absl::Span<const NodeCost> nodes,
                         const PlacementOptions& options) {
  const int32_t layer_count = model.layer_count();
  if (layer_count == 0) return Invalid("placement: the model has no layers");
  if (model.context_tokens < 1 || model.sessions < 1) {
    return Invalid("placement: context_tokens and sessions must be at least 1");
  }
  const double kv_bytes = static_cast<double>(model.sessions) * model.context_tokens *
                          static_cast<double>(model.kv_bytes_per_token_layer) * layer_count;
  if (kv_bytes > 1e17 || static_cast<double>(model.sessions) * model.context_tokens > 1e9) {
    return Invalid(absl::StrCat("placement: KV for ", model.sessions, " contexts of ",
                                model.context_tokens, " tokens is beyond any machine"));
  }
  if (nodes.empty()) return Invalid("placement: no node is ready");
  std::vector<NodeId> ids;
  for (const NodeCost& node : nodes) {
    if (!std::isfinite(node.read_bytes_per_s) || node.read_bytes_per_s <= 0) {
      return Invalid(absl::StrCat("placement: ", node.node.value(), " reports no read speed"));
    }
    ids.push_back(node.node);
  }
  std::sort(ids.begin(), ids.end());
  if (auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
    return Invalid(absl::StrCat("placement: ", twice->value(), " is listed twice"));
  }
  const int32_t node_count = static_cast<int32_t>(nodes.size());
  if (options.replicas < 1 || options.replicas > kReplicasMax) {
    return Invalid(
        absl::StrFormat("%s: %d replicas; 1 to %d", model.name, options.replicas, kReplicasMax));
  }
  const int32_t ranges =
      options.ranges.empty() ? options.shards : static_cast<int32_t>(options.ranges.size());
  if (options.replicas > 1 && options.replicas * std::max(ranges, 1) > node_count) {
    return MakeFailure(
        FailureKind::kOverloaded,
        absl::StrFormat("%s: %d ranges on %d nodes each need %d nodes, %d are ready and free",
                        model.name, std::max(ranges, 1), options.replicas,
                        options.replicas * std::max(ranges, 1), node_count));
  }
  if (!options.ranges.empty()) {
    int32_t next = 0;
    for (const LayerRange& range : options.ranges) {
      if (range.begin != next || range.empty() || range.end > layer_count) {
        return Invalid(
            absl::StrFormat("placement: range [%d, %d) does not go on at layer %d of %d; ranges "
                            "must tile the model",
                            range.begin, range.end, next, layer_count));
      }
      next = range.end;
    }
    if (next != layer_count) {
      return Invalid(
          absl::StrFormat("placement: the ranges end at layer %d of %d", next, layer_count));
    }
    if (static_cast<int32_t>(options.ranges.size()) > node_count) {
      return MakeFailure(FailureKind::kOverloaded,
                         absl::StrFormat("%s: %d ranges need as many nodes, %d are ready and free",
                                         model.name, options.ranges.size(), node_count));
    }
    return absl::OkStatus();
  }
  if (options.shards < 0 || options.shards > layer_count) {
    return Invalid(
        absl::StrFormat("%s: %d shards of %d layers", model.name, options.shards, layer_count));
  }
  if (options.shards > node_count) {
    return MakeFailure(FailureKind::kOverloaded,
                       absl::StrFormat("%s: %d shards need as many nodes, %d are ready and free",
                                       model.name, options.shards, node_count));
  }
  return absl::OkStatus();
}

// Better: the slower stage is faster; then the whole lap; then the cut met first.
bool IsBetter(const LayerCut& a, const std::optional<LayerCut>& b) {
  if (!b) return true;
  if (a.slowest_s != b->slowest_s) return a.slowest_s < b->slowest_s;
  return a.total_s < b->total_s;
}

struct Candidate {
  LayerCut cut;
  std::vector<const NodeCost*> order;
  std::vector<const NodeCost*> replicas;  // One after the other for each range, then again.
};

// Nodes in the order of the ring, or nothing.
using Order = std::vector<const NodeCost*>;

bool HasAvoidedLink(const Order& order, const std::vector<AvoidedLink>& links) {
  for (size_t i = 0; order.size() > 1 && i < order.size(); ++i) {
    const AvoidedLink link{order[i]->node, order[(i + 1) % order.size()]->node};
    if (std::find(links.begin(), links.end(), link) != links.end()) return true;
  }
  return false;
}

// The first order of the nodes behind the head whose ring has no link to avoid, and which `fits`.
template <typename Fits>
std::optional<Order> AvoidLinks(const Order& order, size_t fixed,
                                const std::vector<AvoidedLink>& links, Fits fits) {
  if (links.empty() || !HasAvoidedLink(order, links)) return order;
  std::vector<size_t> at(order.size());
  std::iota(at.begin(), at.end(), size_t{0});
  for (int tried = 0; tried < kOrdersMax; ++tried) {
    if (!std::next_permutation(at.begin() + static_cast<ptrdiff_t>(fixed), at.end())) break;
    Order other;
    for (const size_t i : at) other.push_back(order[i]);
    if (!HasAvoidedLink(other, links) && fits(other)) return other;
  }
  return std::nullopt;
}

// The best cut met so far, with its nodes.
struct Search {
  const ModelCost& model;
  const std::vector<AvoidedLink>& avoid_links;
  std::optional<Candidate> chosen;

  void Try(const Order& wanted) {
    const std::optional<Order> order =
        AvoidLinks(wanted, 1, avoid_links, [](const Order&) { return true; });
    if (!order) return;
    const std::optional<LayerCut> cut = CutLayers(model, *order);
    if (!cut) return;
    if (chosen && !IsBetter(*cut, chosen->cut)) return;
    chosen = Candidate{.cut = *cut, .order = *order, .replicas = {}};
  }

  // Each of `members` as the head, the others behind it in their order.
  void TryHeads(const Order& members) {
    for (size_t head = 0; head < members.size(); ++head) {
      Order order = {members[head]};
      for (size_t i = 0; i < members.size(); ++i) {
        if (i != head) order.push_back(members[i]);
      }
      Try(order);
    }
  }
};

double SubsetCount(size_t n, size_t k) {
  double count = 1;
  for (size_t i = 0; i < k; ++i) {
    count = count * static_cast<double>(n - i) / static_cast<double>(i + 1);
  }
  return count;
}

// `by_speed` is the order of the ring; members keep it.
std::vector<const NodeCost*> InRingOrder(const std::vector<const NodeCost*>& by_speed,
                                         const std::vector<const NodeCost*>& members) {
  std::vector<const NodeCost*> ordered;
  for (const NodeCost* node : by_speed) {
    if (std::find(members.begin(), members.end(), node) != members.end()) ordered.push_back(node);
  }
  return ordered;
}

std::optional<Candidate> PlaceOn(const ModelCost& model, const Order& by_speed, size_t count,
                                 const std::vector<AvoidedLink>& avoid_links) {
  Search search{.model = model, .avoid_links = avoid_links, .chosen = std::nullopt};
  if (SubsetCount(by_speed.size(), count) <= kSubsetsMax) {
    std::vector<bool> picked(by_speed.size(), false);
    std::fill(picked.begin(), picked.begin() + static_cast<ptrdiff_t>(count), true);
    do {
      Order members;
      for (size_t i = 0; i < by_speed.size(); ++i) {
        if (picked[i]) members.push_back(by_speed[i]);
      }
      search.TryHeads(members);
    } while (std::prev_permutation(picked.begin(), picked.end()));
    return search.chosen;
  }
  Order by_memory = by_speed;
  std::stable_sort(by_memory.begin(), by_memory.end(), [](const NodeCost* a, const NodeCost* b) {
    return a->memory_bytes > b->memory_bytes;
  });
  for (const NodeCost* head : by_speed) {
    for (const Order* companions : std::initializer_list<const Order*>{&by_speed, &by_memory}) {
      Order others;
      for (const NodeCost* node : *companions) {
        if (node != head && others.size() + 1 < count) others.push_back(node);
      }
      Order order = {head};
      for (const NodeCost* node : InRingOrder(by_speed, others)) order.push_back(node);
      search.Try(order);
    }
  }
  return search.chosen;
}

bool FitsRange(const ModelCost& model, const NodeCost& node, LayerRange range) {
  return ShardBytes(model, range, range.begin == 0) <= node.memory_bytes;
}

// Nodes for fixed ranges: the smallest limit on a stage's time under which every range finds a
// node of its own (augmenting paths, nodes tried fastest first).
std::optional<Order> MatchRanges(const ModelCost& model, const Order& by_speed,
                                 const std::vector<LayerRange>& ranges) {
  const auto seconds = [&](size_t n, size_t r) {
    return ShardSeconds(model, *by_speed[n], ranges[r], ranges[r].begin == 0);
  };
  std::vector<double> limits;
  for (size_t r = 0; r < ranges.size(); ++r) {
    for (size_t n = 0; n < by_speed.size(); ++n) {
      if (FitsRange(model, *by_speed[n], ranges[r])) limits.push_back(seconds(n, r));
    }
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  std::vector<size_t> range_of;
  const auto matches = [&](double limit) {
    range_of.assign(by_speed.size(), ranges.size());
    std::vector<bool> seen;
    const auto fits = [&](size_t n, size_t r) {
      return FitsRange(model, *by_speed[n], ranges[r]) && seconds(n, r) <= limit;
    };
    std::function<bool(size_t)> find = [&](size_t r) {
      for (size_t n = 0; n < by_speed.size(); ++n) {
        if (range_of[n] != ranges.size() || !fits(n, r)) continue;
        range_of[n] = r;
        return true;
      }
      for (size_t n = 0; n < by_speed.size(); ++n) {
        if (seen[n] || !fits(n, r)) continue;
        seen[n] = true;
        if (!find(range_of[n])) continue;
        range_of[n] = r;
        return true;
      }
      return false;
    };
    for (size_t r = 0; r < ranges.size(); ++r) {
      seen.assign(by_speed.size(), false);
      if (!find(r)) return false;
    }
    return true;
  };
  const auto limit =
      std::partition_point(limits.begin(), limits.end(), [&](double l) { return !matches(l); });
  if (limit == limits.end()) return std::nullopt;
  matches(*limit);
  Order nodes(ranges.size());
  for (size_t n = 0; n < by_speed.size(); ++n) {
    if (range_of[n] < ranges.size()) nodes[range_of[n]] = by_speed[n];
  }
  return nodes;
}

std::optional<Candidate> PlaceRanges(const ModelCost& model, const Order& by_speed,
                                     const PlacementOptions& options) {
  std::optional<Order> order = MatchRanges(model, by_speed, options.ranges);
  if (!order) return std::nullopt;
  order = AvoidLinks(*order, 0, options.avoid_links, [&](const Order& other) {
    for (size_t r = 0; r < other.size(); ++r) {
      if (!FitsRange(model, *other[r], options.ranges[r])) return false;
    }
    return true;
  });
  if (!order) return std::nullopt;
  Candidate chosen;
  chosen.cut.ranges = options.ranges;
  chosen.order = *std::move(order);
  return chosen;
}

// Gives every range of `chosen` its other nodes; says whether there are enough.
bool AddReplicas(const ModelCost& model, const Order& by_speed, int32_t replicas,
                 Candidate& chosen) {
  Order left;
  for (const NodeCost* node : by_speed) {
    if (std::find(chosen.order.begin(), chosen.order.end(), node) == chosen.order.end()) {
      left.push_back(node);
    }
  }
  std::vector<LayerRange> ranges;
  for (int32_t i = 1; i < replicas; ++i) {
    ranges.insert(ranges.end(), chosen.cut.ranges.begin(), chosen.cut.ranges.end());
  }
  if (ranges.empty()) return true;
  std::optional<Order> nodes = MatchRanges(model, left, ranges);
  if (!nodes) return false;
  chosen.replicas = *std::move(nodes);
  return true;
}

// Noise taken out: of one device, speeds near the fastest become one, and so on with the rest.
std::vector<NodeCost> EvenSpeeds(absl::Span<const NodeCost> nodes) {
  std::vector<NodeCost> even(nodes.begin(), nodes.end());
  std::sort(even.begin(), even.end(), [](const NodeCost& a, const NodeCost& b) {
    if (a.device != b.device) return a.device < b.device;
    if (a.read_bytes_per_s != b.read_bytes_per_s) return a.read_bytes_per_s > b.read_bytes_per_s;
    return a.node < b.node;
  });
  for (size_t first = 0; first < even.size();) {
    const double fastest = even[first].read_bytes_per_s;
    size_t end = first + 1;
    while (end < even.size() && !even[end].device.empty() &&
           even[end].device == even[first].device &&
           even[end].read_bytes_per_s * kNoiseFactor > fastest) {
      ++end;
    }
    const double slowest = even[end - 1].read_bytes_per_s;
    for (; first < end; ++first) even[first].read_bytes_per_s = slowest;
  }
  return even;
}

Order BySpeed(const std::vector<NodeCost>& nodes) {
  Order by_speed;
  for (const NodeCost& node : nodes) by_speed.push_back(&node);
  std::sort(by_speed.begin(), by_speed.end(), [](const NodeCost* a, const NodeCost* b) {
    if (a->read_bytes_per_s != b->read_bytes_per_s) {
      return a->read_bytes_per_s > b->read_bytes_per_s;
    }
    return a->node < b->node;
  });
  return by_speed;
}

std::string NeedsText(const ModelCost& model) {
  uint64_t weights = model.embedding_bytes + model.head_bytes;
  for (uint64_t bytes : model.layer_bytes) weights += bytes;
  return absl::StrCat(
      FormatBytes(weights), " weights + ",
      FormatBytes(model.kv_bytes_per_layer() * static_cast<uint64_t>(model.layer_count())), " KV (",
      model.sessions, " x ", model.context_tokens, " tokens) + ", FormatBytes(model.scratch_bytes),
      " scratch a node");
}

// Fills the nodes one after the other, largest first, to show how far they get. What is short is
// what the last node would need beyond what it has to hold the rest.
absl::Status DoesNotFit(const ModelCost& model, const std::vector<const NodeCost*>& by_speed,
                        size_t count) {
  std::vector<const NodeCost*> order = by_speed;
  std::stable_sort(order.begin(), order.end(), [](const NodeCost* a, const NodeCost* b) {
    return a->memory_bytes > b->memory_bytes;
  });
  order.resize(count);
  const int32_t layer_count = model.layer_count();
  std::string lines;
  uint64_t short_bytes = 0;
  int32_t next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const NodeCost& node = *order[i];
    const bool is_head = i == 0;
    const int32_t others = static_cast<int32_t>(order.size() - i) - 1;  // A layer each, at least.
    int32_t end = next;
    while (end < layer_count - others &&
           ShardBytes(model, {next, end + 1}, is_head) <= node.memory_bytes) {
      ++end;
    }
    absl::StrAppend(&lines, "\n", node.node.value(), " has ", FormatBytes(node.memory_bytes),
                    " free: ");
    const uint64_t one_more = ShardBytes(model, {next, next + 1}, is_head);
    if (end > next) {
      absl::StrAppend(&lines, "fits ", LayerRange{next, end}.ToString(), " of ", layer_count,
                      is_head ? " as head" : "");
    } else {
      absl::StrAppend(&lines, "fits no layer", is_head ? " as head" : "", ", one needs ",
                      FormatBytes(one_more));
      end = others > 0 ? next + 1 : next;  // Go on as if it had one.
    }
    const LayerRange wanted{next, others > 0 ? next + 1 : layer_count};
    const uint64_t needed = ShardBytes(model, wanted, is_head);
    if (needed > node.memory_bytes) short_bytes += needed - node.memory_bytes;
    next = end;
  }
  return MakeFailure(FailureKind::kOverloaded,
                     absl::StrCat(model.name, " does not fit on ", count,
                                  count == 1 ? " node" : " nodes", ": it needs ", NeedsText(model),
                                  lines, "\nshort by ", FormatBytes(short_bytes)));
}

absl::Status RangesDoNotFit(const ModelCost& model, const std::vector<const NodeCost*>& by_speed,
                            const std::vector<LayerRange>& ranges) {
  std::string lines;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const bool is_head = ranges[r].begin == 0;
    absl::StrAppend(&lines, "\n", ranges[r].ToString(), is_head ? " as head need " : " need ",
                    FormatBytes(ShardBytes(model, ranges[r], is_head)));
  }
  for (const NodeCost* node : by_speed) {
    absl::StrAppend(&lines, "\n", node->node.value(), " has ", FormatBytes(node->memory_bytes),
                    " free");
  }
  return MakeFailure(FailureKind::kOverloaded,
                     absl::StrCat(model.name, " does not fit in the given ranges: it needs ",
                                  NeedsText(model), lines));
}

PlacedShard ShardOn(const ModelCost& model, const NodeCost& node, LayerRange layers) {
  const bool is_head = layers.begin == 0;
  return {.node = node.node,
          .layers = layers,
          .is_head = is_head,
          .weight_bytes = ShardWeightBytes(model, layers, is_head),
          .kv_bytes = model.kv_bytes_per_layer() * static_cast<uint64_t>(layers.count()),
          .total_bytes = ShardBytes(model, layers, is_head),
          .step_time = absl::Seconds(ShardSeconds(model, node, layers, is_head))};
}

void AddShard(const ModelCost& model, const NodeCost& node, LayerRange layers, bool is_replica,
              Placement& placement) {
  PlacedShard shard = ShardOn(model, node, layers);
  absl::StrAppend(
      &placement.explanation, placement.shards.empty() ? "" : "\n", node.node.value(), ": ",
      layers.ToString(), shard.is_head ? " (head)" : "", is_replica ? " (replica)" : "", ", ",
      FormatBytes(shard.weight_bytes), " weights + ", FormatBytes(shard.kv_bytes),
      " KV = ", FormatBytes(shard.total_bytes), " of ", FormatBytes(node.memory_bytes), " free, ",
      absl::StrFormat("%.1f ms a token", absl::ToDoubleMilliseconds(shard.step_time)));
  if (!is_replica) {
    placement.step_time += shard.step_time;
    placement.slowest_stage = std::max(placement.slowest_stage, shard.step_time);
  }
  placement.shards.push_back(std::move(shard));
}

Placement Describe(const ModelCost& model, const Candidate& chosen) {
  Placement placement;
  placement.kv_pages = model.kv_pages();
  const size_t ranges = chosen.order.size();
  for (size_t r = 0; r < ranges; ++r) {
    AddShard(model, *chosen.order[r], chosen.cut.ranges[r], false, placement);
    for (size_t i = r; i < chosen.replicas.size(); i += ranges) {
      AddShard(model, *chosen.replicas[i], chosen.cut.ranges[r], true, placement);
    }
  }
  return placement;
}

}  // namespace

int32_t ModelCost::kv_pages() const {
  return sessions * ((context_tokens + kPageTokens - 1) / kPageTokens);
}

uint64_t ModelCost::kv_bytes_per_layer() const {
  return static_cast<uint64_t>(kv_pages()) * kPageTokens * kv_bytes_per_token_layer;
}

absl::StatusOr<Placement> Place(const ModelCost& model, absl::Span<const NodeCost> nodes,
                                const PlacementOptions& options) {
  SL_RETURN_IF_ERROR(CheckInputs(model, nodes, options));
  const std::vector<NodeCost> even = EvenSpeeds(nodes);
  const Order by_speed = BySpeed(even);
  const bool is_cut = !options.ranges.empty();
  const size_t most = std::min(nodes.size(), model.layer_bytes.size());
  const size_t asked = is_cut ? options.ranges.size() : static_cast<size_t>(options.shards);
  const size_t first = asked > 0 ? asked : 1;
  const size_t last = asked > 0 ? asked : most;
  const auto place = [&](size_t count, const std::vector<AvoidedLink>& avoid_links) {
    if (!is_cut) return PlaceOn(model, by_speed, count, avoid_links);
    PlacementOptions cut = options;
    cut.avoid_links = avoid_links;
    return PlaceRanges(model, by_speed, cut);
  };
  bool fits_once = false;
  for (size_t count = first; count <= last; ++count) {
    std::optional<Candidate> chosen = place(count, options.avoid_links);
    if (!chosen) continue;
    fits_once = true;
    if (AddReplicas(model, by_speed, options.replicas, *chosen)) return Describe(model, *chosen);
  }
  if (fits_once) {
    return MakeFailure(
        FailureKind::kOverloaded,
        absl::StrCat(model.name, " fits, but the ", nodes.size(), " nodes do not hold each range ",
                     options.replicas, " times: one copy needs ", NeedsText(model)));
  }
  if (!options.avoid_links.empty() && place(last, {}).has_value()) {
    return MakeFailure(FailureKind::kOverloaded,
                       absl::StrCat(model.name, ": every ring over ", last, " of ", nodes.size(),
                                    " nodes has a link that is not to be used"));
  }
  if (is_cut) return RangesDoNotFit(model, by_speed, options.ranges);
  return DoesNotFit(model, by_speed, last);
}

absl::StatusOr<std::vector<PlacedShard>> PlaceSingly(const ModelCost& model,
                                                     const std::vector<LayerRange>& ranges,
                                                     absl::Span<const NodeCost> nodes) {
  SL_RETURN_IF_ERROR(CheckInputs(model, nodes, {}));
  for (const LayerRange& range : ranges) {
    if (range.empty() || range.begin < 0 || range.end > model.layer_count()) {
      return Invalid(absl::StrFormat("placement: range [%d, %d) of %d layers", range.begin,
                                     range.end, model.layer_count()));
    }
  }
  const std::vector<NodeCost> even = EvenSpeeds(nodes);
  const Order by_speed = BySpeed(even);
  const std::optional<Order> order = MatchRanges(model, by_speed, ranges);
  if (!order) return RangesDoNotFit(model, by_speed, ranges);
  std::vector<PlacedShard> shards;
  for (size_t r = 0; r < ranges.size(); ++r) {
    shards.push_back(ShardOn(model, *(*order)[r], ranges[r]));
  }
  return shards;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr double kKiB = 1024;
  const double value = static_cast<double>(bytes);
  if (value >= kKiB * kKiB * kKiB) return absl::StrFormat("%.1f GiB", value / (kKiB * kKiB * kKiB));
  if (value >= kKiB * kKiB) return absl::StrFormat("%.1f MiB", value / (kKiB * kKiB));
  if (value >= kKiB) return absl::StrFormat("%.1f KiB", value / kKiB);
  return absl::StrCat(bytes, " bytes");
}

}  // namespace shardline
