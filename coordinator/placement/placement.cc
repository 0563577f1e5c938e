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
};

// Tries each of `members` as the head, the others behind it in their order.
void TryHeads(const ModelCost& model, const std::vector<const NodeCost*>& members,
              std::optional<LayerCut>& best, std::optional<Candidate>& chosen) {
  for (size_t head = 0; head < members.size(); ++head) {
    std::vector<const NodeCost*> order = {members[head]};
    for (size_t i = 0; i < members.size(); ++i) {
      if (i != head) order.push_back(members[i]);
    }
    std::optional<LayerCut> cut = CutLayers(model, order);
    if (cut && IsBetter(*cut, best)) {
      best = cut;
      chosen = Candidate{.cut = *cut, .order = order};
    }
  }
}

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

std::optional<Candidate> PlaceOn(const ModelCost& model,
                                 const std::vector<const NodeCost*>& by_speed, size_t count) {
  std::optional<LayerCut> best;
  std::optional<Candidate> chosen;
  if (SubsetCount(by_speed.size(), count) <= kSubsetsMax) {
    std::vector<bool> picked(by_speed.size(), false);
    std::fill(picked.begin(), picked.begin() + static_cast<ptrdiff_t>(count), true);
    do {
      std::vector<const NodeCost*> members;
      for (size_t i = 0; i < by_speed.size(); ++i) {
        if (picked[i]) members.push_back(by_speed[i]);
      }
      TryHeads(model, members, best, chosen);
    } while (std::prev_permutation(picked.begin(), picked.end()));
    return chosen;
  }
  std::vector<const NodeCost*> by_memory = by_speed;
  std::stable_sort(by_memory.begin(), by_memory.end(), [](const NodeCost* a, const NodeCost* b) {
    return a->memory_bytes > b->memory_bytes;
  });
  for (const NodeCost* head : by_speed) {
    for (const std::vector<const NodeCost*>* companions :
         std::initializer_list<const std::vector<const NodeCost*>*>{&by_speed, &by_memory}) {
      std::vector<const NodeCost*> others;
      for (const NodeCost* node : *companions) {
        if (node != head && others.size() + 1 < count) others.push_back(node);
      }
      std::vector<const NodeCost*> order = {head};
      for (const NodeCost* node : InRingOrder(by_speed, others)) order.push_back(node);
      std::optional<LayerCut> cut = CutLayers(model, order);
      if (cut && IsBetter(*cut, best)) {
        best = cut;
        chosen = Candidate{.cut = *cut, .order = order};
      }
    }
  }
  return chosen;
}

// Nodes for fixed ranges: the smallest limit on a stage's time under which every range finds a
// node of its own (augmenting paths, nodes tried fastest first).
std::optional<Candidate> PlaceRanges(const ModelCost& model,
                                     const std::vector<const NodeCost*>& by_speed,
                                     const std::vector<LayerRange>& ranges) {
  const size_t none = by_speed.size();
  std::vector<double> limits;
  for (size_t r = 0; r < ranges.size(); ++r) {
    for (const NodeCost* node : by_speed) {
      if (ShardBytes(model, ranges[r], r == 0) <= node->memory_bytes) {
        limits.push_back(ShardSeconds(model, *node, ranges[r], r == 0));
      }
    }
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  std::vector<size_t> range_of;
  const auto matches = [&](double limit) {
    range_of.assign(by_speed.size(), ranges.size());
    std::vector<bool> seen;
    std::function<bool(size_t)> find = [&](size_t r) {
      for (size_t n = 0; n < none; ++n) {
        const bool fits = ShardBytes(model, ranges[r], r == 0) <= by_speed[n]->memory_bytes &&
                          ShardSeconds(model, *by_speed[n], ranges[r], r == 0) <= limit;
        if (!fits || seen[n]) continue;
        seen[n] = true;
        if (range_of[n] == ranges.size() || find(range_of[n])) {
          range_of[n] = r;
          return true;
        }
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
  Candidate chosen;
  chosen.order.resize(ranges.size());
  chosen.cut.ranges = ranges;
  for (size_t n = 0; n < by_speed.size(); ++n) {
    if (range_of[n] < ranges.size()) chosen.order[range_of[n]] = by_speed[n];
  }
  return chosen;
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
    absl::StrAppend(&lines, "\n", ranges[r].ToString(), r == 0 ? " as head need " : " need ",
                    FormatBytes(ShardBytes(model, ranges[r], r == 0)));
  }
  for (const NodeCost* node : by_speed) {
    absl::StrAppend(&lines, "\n", node->node.value(), " has ", FormatBytes(node->memory_bytes),
                    " free");
  }
  return MakeFailure(FailureKind::kOverloaded,
                     absl::StrCat(model.name, " does not fit in the given ranges: it needs ",
                                  NeedsText(model), lines));
}

Placement Describe(const ModelCost& model, const Candidate& chosen) {
  Placement placement;
  placement.kv_pages = model.kv_pages();
  double total_s = 0;
  double slowest_s = 0;
  for (size_t i = 0; i < chosen.order.size(); ++i) {
    const NodeCost& node = *chosen.order[i];
    const LayerRange layers = chosen.cut.ranges[i];
    const bool is_head = i == 0;
    const double seconds = ShardSeconds(model, node, layers, is_head);
    PlacedShard shard{
        .node = node.node,
        .layers = layers,
        .is_head = is_head,
        .weight_bytes = ShardWeightBytes(model, layers, is_head),
        .kv_bytes = model.kv_bytes_per_layer() * static_cast<uint64_t>(layers.count()),
        .total_bytes = ShardBytes(model, layers, is_head),
        .step_time = absl::Seconds(seconds)};
    total_s += seconds;
    slowest_s = std::max(slowest_s, seconds);
    absl::StrAppend(&placement.explanation, i == 0 ? "" : "\n", node.node.value(), ": ",
                    layers.ToString(), is_head ? " (head), " : ", ",
                    FormatBytes(shard.weight_bytes), " weights + ", FormatBytes(shard.kv_bytes),
                    " KV = ", FormatBytes(shard.total_bytes), " of ",
                    FormatBytes(node.memory_bytes), " free, ",
                    absl::StrFormat("%.1f ms a token", seconds * 1e3));
    placement.shards.push_back(std::move(shard));
  }
  placement.step_time = absl::Seconds(total_s);
  placement.slowest_stage = absl::Seconds(slowest_s);
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
  std::vector<const NodeCost*> by_speed;
  for (const NodeCost& node : nodes) by_speed.push_back(&node);
  std::sort(by_speed.begin(), by_speed.end(), [](const NodeCost* a, const NodeCost* b) {
    if (a->read_bytes_per_s != b->read_bytes_per_s) {
      return a->read_bytes_per_s > b->read_bytes_per_s;
    }
    return a->node < b->node;
  });
  if (!options.ranges.empty()) {
    std::optional<Candidate> chosen = PlaceRanges(model, by_speed, options.ranges);
    if (!chosen) return RangesDoNotFit(model, by_speed, options.ranges);
    return Describe(model, *chosen);
  }
  const size_t most = std::min(nodes.size(), model.layer_bytes.size());
  const size_t asked = static_cast<size_t>(options.shards);
  const size_t first = asked > 0 ? asked : 1;
  const size_t last = asked > 0 ? asked : most;
  for (size_t count = first; count <= last; ++count) {
    if (std::optional<Candidate> chosen = PlaceOn(model, by_speed, count)) {
      return Describe(model, *chosen);
    }
  }
  return DoesNotFit(model, by_speed, last);
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
