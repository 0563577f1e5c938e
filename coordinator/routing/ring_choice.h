#pragma once

// One ring out of the shards that may serve: for every range one of its shards, so that the sum
// of the costs of shards and links is smallest. Pure and exact: dynamic programming along the
// ranges for each head in turn, O(heads x shards x replicas). Among equals the first named.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/id.h"

namespace shardline {

struct RingShard {
  NodeId node;
  uint64_t cost = 0;
};

// Of the link from one node to another; nothing: it must not be used.
using LinkCost = std::function<std::optional<uint64_t>(const NodeId& from, const NodeId& to)>;

// An index into each of `ranges`. The ring closes from the last range on the head; a ring of one
// range has no links. Nothing when a range is empty or every ring has a link that must not be used.
std::optional<std::vector<size_t>> CheapestRing(const std::vector<std::vector<RingShard>>& ranges,
                                                const LinkCost& link_cost);

}  // namespace shardline
