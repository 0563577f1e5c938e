#pragma once

// Coordinator.Join: the stream every node holds open to its coordinator.
//
// A shell: it parses, hands messages on and writes what it is told. Who may join, what a beat
// means and when a node is lost is for coordinator/membership to say.

#include <memory>

#include "absl/status/status.h"
#include "coordinator/membership/node_facts.h"
#include "shardline/v1/join.pb.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shardline {

// Where the messages of the nodes go. Called on gRPC threads, must not block; in order for one
// stream, and the end comes last.
class NodeStreamEvents {
 public:
  virtual ~NodeStreamEvents() = default;
  virtual void OnNodeMessage(JoinStreamId stream, v1::NodeMessage message) = 0;
  virtual void OnNodeStreamEnd(JoinStreamId stream) = 0;
};

class JoinService {
 public:
  // `events` outlives the server that serves this.
  explicit JoinService(NodeStreamEvents* events);
  ~JoinService();

  // Queues `message` for the node. False when the stream is gone, or when the node has left so
  // much unread that its stream is ended here. Any thread.
  bool Send(JoinStreamId stream, v1::CoordinatorMessage message);

  // Ends the stream after what is queued. Any thread.
  void End(JoinStreamId stream, const absl::Status& status);

  grpc::Service* service();

 private:
  class Service;
  class Reactor;
  struct Streams;

  const std::shared_ptr<Streams> streams_;
  const std::unique_ptr<Service> service_;
};

}  // namespace shardline
