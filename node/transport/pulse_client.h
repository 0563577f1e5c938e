#pragma once

// Beats to the neighbours downstream, on connections of its own.
//
// A thread of its own runs the core and writes the beats, so that none waits behind activations,
// the strand or the device.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "node/pulse/pulse_core.h"
#include "node/transport/call_counter.h"

namespace shardline {

// Where an executor stands.
struct PulseProgress {
  uint64_t jobs_started = 0;
  uint64_t jobs_done = 0;
};

// Called on the client's thread; must not block.
struct PulseClientEvents {
  std::function<StagePeer()> self;  // Who speaks, for each dial.
  std::function<PulseProgress()> progress;
  // The peer is silent, gone or wedged. The failure names it, and for silence its reporter: this
  // node.
  std::function<void(const StagePeer&, const absl::Status&)> on_lost;
  std::function<void(const StagePeer&)> on_recovered;  // May be null.
};

// Any thread.
class PulseClient {
 public:
  // `clock` and `calls` outlive the client, `calls` also its calls.
  PulseClient(const PulseOptions& options, PulseClientEvents events, const Clock* clock,
              CallCounter* calls);
  // Hangs up on everyone; afterwards no event runs.
  ~PulseClient();

  PulseClient(const PulseClient&) = delete;
  PulseClient& operator=(const PulseClient&) = delete;

  void Want(const StagePeer& peer, const std::string& address);
  void Drop(const StagePeer& peer);

  // The lost peers, as of the last time the thread ran.
  std::vector<SilentPeer> Silent() const;

 private:
  struct State;
  class Call;

  const std::shared_ptr<State> state_;
};

}  // namespace shardline
