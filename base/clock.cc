#include "base/clock.h"

#include <ctime>

namespace shardline {
namespace {

class BootTimeClock final : public Clock {
 public:
  Instant Now() const override {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return Instant::FromOrigin(absl::DurationFromTimespec(now));
  }
};

}  // namespace

Clock* SystemClock() {
  static BootTimeClock* const clock = new BootTimeClock;
  return clock;
}

}  // namespace shardline
