#pragma once

// How often a measured value fell into which of fixed ranges. A plain value: whoever owns it
// counts, and a copy is what a scrape shows. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace shardline {

class Histogram {
 public:
  // `bounds` rise; a value belongs to the first bound that is not below it, or to none of them.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size()) {}

  void Observe(double value) {
    ++count_;
    sum_ += value;
    for (size_t i = 0; i < bounds_.size(); ++i) {
      if (value <= bounds_[i]) {
        ++counts_[i];
        return;
      }
    }
  }

  absl::Span<const double> bounds() const { return bounds_; }
  absl::Span<const uint64_t> counts() const { return counts_; }  // Of each range alone.
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

// Seconds that loading, re-planning and failing over take.
inline std::vector<double> SlowBounds() {
  return {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900};
}

}  // namespace shardline
