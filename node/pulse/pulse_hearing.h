#pragma once

// Which neighbours live: the side that is dialled, and answers.
//
// Every beat is answered with its number, and a beat that echoes a newer answer proves that both
// directions work; a lease runs from it. Ends nothing: it only knows who is silent, for the report
// to the coordinator. A stream that ends is forgotten, since its sender may be content.
//
// Sans-IO. Not thread-safe.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/instant.h"
#include "base/route.h"
#include "node/pulse/pulse_words.h"

namespace shardline {

// One accepted stream, numbered by the shell. Never used twice in a process.
using PulseStreamId = Id<struct PulseStreamTag>;

class PulseHearing {
 public:
  explicit PulseHearing(const PulseOptions& options);

  // The number to answer with. A refusal ends the stream:
  //   kInvalidRequest  numbers that cannot be, or another peer than before on this stream
  //   kOverloaded      too many streams
  absl::StatusOr<uint64_t> OnBeat(PulseStreamId stream, const StagePeer& from,
                                  const PulseBeat& beat, Instant now);
  void OnStreamClosed(PulseStreamId stream);

  // Whose stream is up but brings no newer echo for a lease; each peer once.
  std::vector<SilentPeer> Silent(Instant now) const;

 private:
  struct Stream {
    StagePeer from;
    uint64_t last_number = 0;
    uint64_t last_echo = 0;
    Instant proved_at;
  };

  const PulseOptions options_;

  std::map<PulseStreamId, Stream> streams_;
};

}  // namespace shardline
