#pragma once

// The node's line to its coordinator: joins, beats, reports, and obeys; forever.
//
// Beats go out on a thread and a connection of their own, so that none waits behind activations
// or a full executor. A coordinator that falls silent for a lease, refuses or dies is dialled
// again with growing, jittered pauses; meanwhile nothing is torn down here, since running data
// streams need no coordinator. So is one whose welcome this node does not take, since it may be
// restored from an old ledger and start anew. Only when another process has taken this node's id
// there is nothing to come back to.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "shardline/v1/join.pb.h"

namespace shardline {

struct CoordinatorClientOptions {
  std::string address;
  absl::Duration pause_min = absl::Milliseconds(100);
  absl::Duration pause_max = absl::Seconds(3);
  absl::Duration welcome_timeout = absl::Seconds(3);
};

// Called on gRPC threads or the client's own; must not block.
struct CoordinatorEvents {
  std::function<v1::NodeHello()> hello;      // For each time it dials; names this node.
  std::function<v1::Heartbeat()> heartbeat;  // Number and echo are filled in here.
  // A failure hangs up: the welcome is not taken.
  std::function<absl::Status(const v1::NodeWelcome&)> on_welcome;
  std::function<void(const v1::HeartbeatReply&)> on_heartbeat;  // Null: the reply says life only.
  std::function<void(const v1::LoadShard&)> on_load;
  std::function<void(const v1::UnloadShard&)> on_unload;
  std::function<void(const absl::Status&)> on_lost;
  // Another process has this node's id by now. Not dialled again. Null: dialled on.
  std::function<void(const absl::Status&)> on_replaced;
};

// Any thread.
class CoordinatorClient {
 public:
  // Dials at once.
  CoordinatorClient(CoordinatorClientOptions options, CoordinatorEvents events);
  // Hangs up; afterwards no event runs.
  ~CoordinatorClient();

  CoordinatorClient(const CoordinatorClient&) = delete;
  CoordinatorClient& operator=(const CoordinatorClient&) = delete;

  // Sends the state of the shard soon. A newer report replaces one that still waits; one that is
  // lost with the stream is made good by the next hello.
  void Report(v1::ShardReport report);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace shardline
