#include "node/rounds/lap_times.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace shardline {
namespace {

constexpr size_t kLapsKeptMax = 128;
constexpr int kTimesOverP99 = 8;

}  // namespace

LapTimes::LapTimes(absl::Duration timeout_min, absl::Duration timeout_max)
    : timeout_min_(timeout_min), timeout_max_(timeout_max) {
  SL_CHECK(timeout_min > absl::ZeroDuration());
  SL_CHECK(timeout_min <= timeout_max);
}

size_t LapTimes::ClassOf(int32_t token_count) {
  return static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(token_count, 1))));
}

void LapTimes::Add(int32_t token_count, absl::Duration lap) {
  Class& of = classes_[ClassOf(token_count)];
  if (of.laps.size() < kLapsKeptMax) {
    of.laps.push_back(lap);
  } else {
    of.laps[of.oldest] = lap;
    of.oldest = (of.oldest + 1) % kLapsKeptMax;
  }
  std::vector<absl::Duration> sorted = of.laps;
  const size_t rank = (sorted.size() * 99 + 99) / 100 - 1;
  const auto p99 = sorted.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sorted.begin(), p99, sorted.end());
  of.timeout = std::clamp(kTimesOverP99 * *p99, timeout_min_, timeout_max_);
}

absl::Duration LapTimes::TimeoutOf(int32_t token_count) const {
  const Class& of = classes_[ClassOf(token_count)];
  return of.laps.size() < kLapsKnownMin ? timeout_max_ : of.timeout;
}

}  // namespace shardline
