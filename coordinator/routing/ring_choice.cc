#include "coordinator/routing/ring_choice.h"

#include <algorithm>

namespace shardline {
namespace {

// The cheapest way from the head to one shard.
struct Path {
  uint64_t cost = 0;
  size_t before = 0;  // The shard of the range before it.
};
using Paths = std::vector<std::optional<Path>>;

Paths Extend(const std::vector<RingShard>& from, const Paths& paths,
             const std::vector<RingShard>& to, const LinkCost& link_cost) {
  Paths longer(to.size());
  for (size_t j = 0; j < to.size(); ++j) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (!paths[i].has_value()) continue;
      const std::optional<uint64_t> link = link_cost(from[i].node, to[j].node);
      if (!link.has_value()) continue;
      const uint64_t cost = paths[i]->cost + *link + to[j].cost;
      if (!longer[j].has_value() || cost < longer[j]->cost) longer[j] = Path{cost, i};
    }
  }
  return longer;
}

}  // namespace

std::optional<std::vector<size_t>> CheapestRing(const std::vector<std::vector<RingShard>>& ranges,
                                                const LinkCost& link_cost) {
  if (ranges.empty()) return std::nullopt;
  std::optional<std::vector<size_t>> best;
  uint64_t best_cost = 0;
  for (size_t head = 0; head < ranges[0].size(); ++head) {
    std::vector<Paths> paths = {Paths(ranges[0].size())};
    paths[0][head] = Path{.cost = ranges[0][head].cost};
    for (size_t r = 1; r < ranges.size(); ++r) {
      paths.push_back(Extend(ranges[r - 1], paths[r - 1], ranges[r], link_cost));
    }
    for (size_t last = 0; last < ranges.back().size(); ++last) {
      const std::optional<Path>& path = paths.back()[last];
      if (!path.has_value()) continue;
      std::optional<uint64_t> closing = 0;
      if (ranges.size() > 1) {
        closing = link_cost(ranges.back()[last].node, ranges[0][head].node);
      }
      if (!closing.has_value() || (best.has_value() && path->cost + *closing >= best_cost)) {
        continue;
      }
      best_cost = path->cost + *closing;
      best.emplace(ranges.size());
      size_t at = last;
      for (size_t r = ranges.size(); r-- > 0;) {
        (*best)[r] = at;
        at = paths[r][at]->before;
      }
    }
  }
  return best;
}

}  // namespace shardline
