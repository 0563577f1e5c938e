#pragma once

// The whole data plane in one thread: 1 to 5 stage cores and a head core around a ring whose
// every delivery is drawn from a seed. Checked from outside: each client sees exactly the tokens
// that a plain forward of the same model gives, each step is applied at most once, and at the
// end every page is free.

#include <cstdint>

#include "node/stage/stage_core.h"
#include "tests/node/rounds/scripted_proposer.h"

namespace shardline::testing {

struct Faults {
  int copies = 0;           // Bundles delivered a second time, however late.
  int fences = 0;           // Sessions moved to a new epoch, at any point.
  int non_finite = 0;       // Slices that fail on the device.
  int cuts = 0;             // Links that lose the end of what they hold, and the signals on them.
  bool resume = true;       // Steps on a cut link are in doubt, or fail at once.
  bool dials_fail = false;  // Some of the attempts to connect again do.
  bool late_opens = false;  // Steps may overtake the OPEN of any stage but the head's.
  Guesses guesses = Guesses::kNobody;
};

struct RingStats : StageStats {
  uint64_t tokens_drafted = 0;
  uint64_t tokens_accepted = 0;
};

// Runs many seeds and adds up what happened, to prove that it did. Stops at the first that fails.
RingStats RunSeeds(uint32_t first, uint32_t count, const Faults& faults);

}  // namespace shardline::testing
