#pragma once

// Where `now` comes from. Shells hold a Clock and pass instants to the cores; the simulator
// passes its own.

#include "base/instant.h"

namespace shardline {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

// CLOCK_BOOTTIME: monotonic, unmoved by wall-clock jumps, and counts time asleep, so that a
// deadline is not stretched by a suspended machine. Any thread. Never destroyed.
Clock* SystemClock();

}  // namespace shardline
