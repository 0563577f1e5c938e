#pragma once

// What peers say to each other to prove that they live.

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "base/route.h"

namespace shardline {

struct PulseOptions {
  absl::Duration beat = absl::Milliseconds(250);
  absl::Duration lease = absl::Milliseconds(1500);  // From the last answer to a newer beat.
  absl::Duration wedge_timeout = absl::Seconds(5);  // A job of the peer that makes no progress.
  absl::Duration redial_max = absl::Seconds(1);     // Between tries to reach a lost peer.
  size_t streams_max = 256;                         // Accepted at once.
};

// A beat, or the answer to one: then `number` is the number of the beat it answers.
struct PulseBeat {
  uint64_t number = 0;  // From 1, rising.
  uint64_t echo = 0;    // In a beat: the last answer its sender has seen.
  uint64_t jobs_started = 0;
  uint64_t jobs_done = 0;
};

// A neighbour that is not heard, or whose executor stands still.
struct SilentPeer {
  StagePeer peer;
  absl::Duration silent;  // Since the last proof of life, or of progress.

  friend bool operator==(const SilentPeer&, const SilentPeer&) = default;
};

}  // namespace shardline
