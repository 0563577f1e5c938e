#pragma once

// The node's one gRPC server: data plane, head, health and reflection on one port.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "node/transport/head_service.h"
#include "node/transport/shard_service.h"

namespace shardline {

// Names for grpc.health.v1: the process turns, and the node is registered with its coordinator.
inline constexpr char kLivenessService[] = "shardline.liveness";
inline constexpr char kNodeService[] = "shardline.node";

class NodeServer {
 public:
  // Listens on `address`, "host:port" with port 0 for any. Fails with kInvalidRequest if it
  // cannot: a busy port, a name that does not resolve.
  static absl::StatusOr<std::unique_ptr<NodeServer>> Start(const std::string& address,
                                                           ShardEvents shard_events,
                                                           HeadEvents head_events,
                                                           const LinkLimits& limits,
                                                           const LinkWindow& window);
  // Cuts what still runs.
  ~NodeServer();

  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;

  // "host:port" with the port that was bound.
  const std::string& address() const;

  void SetServing(const char* service, bool serving);

  // Refuses new calls, lets running ones end until `timeout`, cuts the rest; returns when every
  // call is over.
  void Shutdown(absl::Duration timeout);

 private:
  struct State;
  explicit NodeServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace shardline
