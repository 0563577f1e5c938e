#pragma once

// What one rendering may cost, and what it has cost so far.
//
// Values charge the bytes they hold and give them back when they die. A charge never fails, it
// only marks the meter, and the interpreter asks at its next step: so making a value is plain code,
// and an overrun is at most what one step makes. A step that can make much out of little (repeat,
// pad, replace) asks Fits first. One thread.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "model/jinja/fault.h"

namespace shardline::jinja {

struct Limits {
  int64_t steps_max = 16'000'000;        // A step is a node evaluated or a few dozen bytes handled.
  size_t bytes_max = size_t{128} << 20;  // Held by values at one time.
  size_t output_bytes_max = size_t{32} << 20;  // Written, captured pieces included.
  int depth_max = 400;                         // Nested evaluations: macros that call macros.
};

// Deepest nesting and largest extent (value.h) of lists and dicts, so that whatever walks a value
// needs no limit of its own.
inline constexpr int kValueDepthMax = 100;
inline constexpr size_t kValueWeightMax = size_t{1} << 21;

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits), steps_left_(limits.steps_max) {}

  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Fails once any limit is passed, and from then on.
  absl::Status Spend(size_t steps) {
    steps_left_ -= static_cast<int64_t>(steps < kStepsAtOnce ? steps : kStepsAtOnce);
    if (steps_left_ < 0) return Fault({"the template takes too many steps"});
    if (too_large_) return Fault({"a list or an object is too large or nested too deeply"});
    if (held_ > limits_.bytes_max) return Fault({"the template needs too much memory"});
    if (written_ > limits_.output_bytes_max) return Fault({"the template writes too much text"});
    return absl::OkStatus();
  }

  // Fails if a value of so many bytes would not fit any more; takes nothing.
  absl::Status Fits(size_t bytes) const {
    if (held_ <= limits_.bytes_max && bytes <= limits_.bytes_max - held_) return absl::OkStatus();
    return Fault({"the template needs too much memory"});
  }

  void MarkTooLarge() { too_large_ = true; }
  void Hold(size_t bytes) {
    held_ += bytes;
    steps_left_ -= static_cast<int64_t>(bytes / kBytesAStep);
  }
  void Release(size_t bytes) { held_ -= bytes; }
  void Write(size_t bytes) { written_ += bytes; }

  const Limits& limits() const { return limits_; }

 private:
  static constexpr size_t kStepsAtOnce = size_t{1} << 40;
  static constexpr size_t kBytesAStep = 64;

  const Limits limits_;
  int64_t steps_left_;
  size_t held_ = 0;
  size_t written_ = 0;
  bool too_large_ = false;
};

// Bytes held on a meter for as long as this lives. Without a meter (constants of a template, which
// outlive every rendering) it counts nothing.
class Charge {
 public:
  Charge() = default;
  Charge(Meter* meter, size_t bytes) : meter_(meter), bytes_(bytes) {
    if (meter_ != nullptr) meter_->Hold(bytes_);
  }
  ~Charge() {
    if (meter_ != nullptr) meter_->Release(bytes_);
  }

  Charge(Charge&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&&) = delete;

 private:
  Meter* meter_ = nullptr;  // Not owned; outlives every value.
  size_t bytes_ = 0;
};

}  // namespace shardline::jinja
