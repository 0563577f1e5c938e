#pragma once

// Shard.Pulse: answers the beats of the neighbours upstream.
//
// A beat is answered in the reaction that brought it, whatever the strand and the device do. One
// that means another node, or another life of this one, is refused.

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "node/pulse/pulse_hearing.h"
#include "node/transport/pulse_client.h"
#include "shardline/v1/link.pb.h"

namespace grpc {
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace shardline {

// Called on gRPC threads; must not block.
struct PulseHostEvents {
  std::function<StagePeer()> self;  // This node's life; incarnation 0 before the first welcome.
  std::function<PulseProgress()> progress;
};

// Any thread. Outlives the server that serves it.
class PulseHost {
 public:
  PulseHost(const PulseOptions& options, PulseHostEvents events, const Clock* clock);
  ~PulseHost();

  // The reactor of one new stream; it deletes itself.
  grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat>* Accept();

  std::vector<SilentPeer> Silent() const;

 private:
  struct State;
  class Call;

  const std::shared_ptr<State> state_;
};

}  // namespace shardline
