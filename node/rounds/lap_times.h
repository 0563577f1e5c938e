#pragma once

// How long steps of a size take to go round the ring, and how long one may take before it counts
// as lost: 8 times the 99th percentile of the last laps, within bounds.
//
// Sizes fall into classes, by powers of two of their tokens. Holds no clock.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace shardline {

class LapTimes {
 public:
  // REQUIRES: zero < timeout_min <= timeout_max.
  LapTimes(absl::Duration timeout_min, absl::Duration timeout_max);

  void Add(int32_t token_count, absl::Duration lap);

  // `timeout_max` while fewer than kLapsKnownMin laps of the size are known.
  absl::Duration TimeoutOf(int32_t token_count) const;

  static constexpr size_t kLapsKnownMin = 8;

 private:
  struct Class {
    std::vector<absl::Duration> laps;  // The last ones; a ring once it is full.
    size_t oldest = 0;
    absl::Duration timeout;
  };

  static size_t ClassOf(int32_t token_count);

  const absl::Duration timeout_min_;
  const absl::Duration timeout_max_;
  std::array<Class, 33> classes_;
};

}  // namespace shardline
