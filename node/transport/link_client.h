#pragma once

// The sending end of a link: bundles to one neighbour, its signals back.
//
// Dials when a bundle wants out, says hello, and writes what the receiver's credits allow; the
// rest waits in a bounded queue. A stream that breaks takes everything unsent with it and is
// reported once; the next bundle dials again, with growing pauses. Nothing is ever sent twice:
// whether a step reached the peer is for the cores to find out.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "node/stage/stage_bundle.h"
#include "node/transport/call_counter.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

struct LinkClientOptions {
  StagePeer peer;
  std::string address;
  v1::LinkHello hello;
  int32_t hidden_dim = 0;
  size_t bundles_waiting_max = 64;
  uint64_t bytes_waiting_max = 64 << 20;
  absl::Duration welcome_timeout = absl::Seconds(3);
  absl::Duration pause_min = absl::Milliseconds(50);  // Between attempts to dial.
  absl::Duration pause_max = absl::Seconds(2);
};

// Called on gRPC threads, never from within Send or Close, and never with a lock held. A call may
// still be running when Close returns.
struct LinkClientEvents {
  std::function<void(RowFailure)> on_row_failure;
  // The stream broke or was refused: kStreamReset, or the peer's refusal, naming the peer.
  std::function<void(absl::Status)> on_lost;
};

// Any thread.
class LinkClient {
 public:
  // `clock` and `calls` outlive the last call, and `calls` counts them.
  LinkClient(LinkClientOptions options, LinkClientEvents events, const Clock* clock,
             CallCounter* calls);
  ~LinkClient();

  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  // Queues or writes `bundle`; it is then sent unless on_lost says otherwise. kOverloaded when the
  // queue is full, kStreamReset while the peer cannot be reached. REQUIRES: hidden, no tokens.
  absl::Status Send(StageBundle bundle);

  // Ends the stream and drops what waits. No event starts after it.
  void Close();

 private:
  class Call;
  struct State;

  const std::shared_ptr<State> state_;  // Shared with the call, which outlives this object.
};

}  // namespace shardline
