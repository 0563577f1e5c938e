#pragma once

// A point on this process's monotonic clock. It never crosses a process: the wire carries
// durations (budgets), and the receiver adds its own now.

#include <compare>

#include "absl/time/time.h"

namespace shardline {

class Instant {
 public:
  // The clock's origin.
  constexpr Instant() = default;

  static Instant FromOrigin(absl::Duration since_origin) { return Instant(since_origin); }
  static Instant InfiniteFuture() { return Instant(absl::InfiniteDuration()); }

  absl::Duration since_origin() const { return since_origin_; }

  friend Instant operator+(Instant a, absl::Duration d) { return Instant(a.since_origin_ + d); }
  friend Instant operator-(Instant a, absl::Duration d) { return Instant(a.since_origin_ - d); }
  friend absl::Duration operator-(Instant a, Instant b) {
    return a.since_origin_ - b.since_origin_;
  }
  friend bool operator==(Instant a, Instant b) { return a.since_origin_ == b.since_origin_; }
  friend std::strong_ordering operator<=>(Instant a, Instant b) {
    if (a.since_origin_ < b.since_origin_) return std::strong_ordering::less;
    if (b.since_origin_ < a.since_origin_) return std::strong_ordering::greater;
    return std::strong_ordering::equal;
  }

 private:
  explicit constexpr Instant(absl::Duration since_origin) : since_origin_(since_origin) {}

  absl::Duration since_origin_ = absl::ZeroDuration();
};

}  // namespace shardline
