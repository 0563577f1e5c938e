#pragma once

// The sending end of a link: bundles to one neighbour, its signals back.
//
// Dials when a bundle wants out or when told to, says hello, and writes what the receiver's credits
// allow; the rest waits in a bounded queue. A stream that breaks takes everything unsent with it
// and is reported once; what is sent until the owner has heard of it is dropped too, since it
// belongs behind the question what the peer has taken. Nothing is ever sent twice: whether a step
// reached the peer is for the cores to find out.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  v1::LinkHello hello;  // Its connection number is set for each dial.
  int32_t hidden_dim = 0;
  size_t bundles_waiting_max = 64;
  uint64_t bytes_waiting_max = 64 << 20;
  absl::Duration welcome_timeout = absl::Seconds(3);
  absl::Duration pause_min = absl::Milliseconds(10);  // Between attempts to dial.
  absl::Duration pause_max = absl::Seconds(1);
};

// Called on gRPC threads, never from within Send or Close, and never with a lock held. A call may
// still be running when Close returns.
struct LinkClientEvents {
  // A connection was welcomed.
  std::function<void()> on_up;
  std::function<void(RowFailure)> on_row_failure;
  std::function<void(std::vector<InspectStatus>)> on_status;
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
  // queue is full. REQUIRES: hidden, no tokens.
  absl::Status Send(StageBundle bundle);

  // Tells what the next bundle will be. A hint, which takes no credit: it is written if it can be
  // before that bundle is sent and behind all that were, by a connection whose peer takes plans,
  // and else dropped. At most one waits. REQUIRES: at least one row.
  void SendPlan(const std::vector<BundleRow>& rows);

  // Asks ahead of all bundles that wait. Dropped if no connection stands.
  void Inspect(const std::vector<InspectRow>& rows);

  // The owner knows of the last on_lost: bundles are taken again.
  void HearLoss();

  // Connects, after the pause that is due, even if nothing is to be sent. Once connected: nothing.
  void Dial();

  // Breaks the stream that stands, if any; on_lost follows.
  void Drop();

  // Ends the stream and drops what waits. No event starts after it.
  void Close();

 private:
  class Call;
  struct State;

  const std::shared_ptr<State> state_;  // Shared with the call, which outlives this object.
};

}  // namespace shardline
