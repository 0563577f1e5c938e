#pragma once

// The coordinator's gRPC server: binds the port, serves the services, health and reflection.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shardline {

// The names under which grpc.health.v1 answers. Liveness: the process turns. Coordinator: a model
// is ready.
inline constexpr char kLivenessService[] = "shardline.liveness";
inline constexpr char kCoordinatorService[] = "shardline.coordinator";

class CoordinatorServer {
 public:
  // Listens on `address` (host:port; port 0 takes a free one). The services outlive the server.
  // Fails with one line when the port is taken or the address is none.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      const std::string& address, const std::vector<grpc::Service*>& services);

  // As Shutdown with no time to spare.
  ~CoordinatorServer();

  int port() const;

  // What the health service says of the coordinator. Any thread.
  void SetReady(bool ready);

  // Refuses new calls, gives the running ones `drain`, then cancels them. Returns when all ended.
  void Shutdown(absl::Duration drain);

 private:
  struct State;
  explicit CoordinatorServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace shardline
