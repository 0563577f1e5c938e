#pragma once

// How fast a counter has risen lately: per second, over a window that slides.

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "base/instant.h"

namespace shardline {

// One thread.
class RateWindow {
 public:
  explicit RateWindow(absl::Duration window) : window_(window) {}

  // `count` never falls, and `now` neither.
  void Add(Instant now, uint64_t count) {
    samples_.push_back({now, count});
    // One older than the window stays: the rate is over the whole of it.
    while (samples_.size() > 2 && now - samples_[1].at >= window_) samples_.pop_front();
  }

  // Zero until two samples are there.
  double PerSecond() const {
    if (samples_.size() < 2) return 0;
    const Sample& first = samples_.front();
    const Sample& last = samples_.back();
    const double seconds = absl::ToDoubleSeconds(last.at - first.at);
    return seconds <= 0 ? 0 : static_cast<double>(last.count - first.count) / seconds;
  }

 private:
  struct Sample {
    Instant at;
    uint64_t count = 0;
  };

  const absl::Duration window_;
  std::deque<Sample> samples_;
};

}  // namespace shardline
