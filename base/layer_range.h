#pragma once

// The half-open range [begin, end) of transformer layers that a shard holds.

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace shardline {

struct LayerRange {
  int32_t begin = 0;
  int32_t end = 0;

  constexpr int32_t count() const { return end - begin; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(int32_t layer) const { return layer >= begin && layer < end; }

  // For people: "layers 0-9", both ends inclusive, as operators count them.
  std::string ToString() const {
    if (empty()) return "no layers";
    return absl::StrCat("layers ", begin, "-", end - 1);
  }

  friend constexpr bool operator==(const LayerRange&, const LayerRange&) = default;
  friend constexpr auto operator<=>(const LayerRange&, const LayerRange&) = default;
};

}  // namespace shardline
