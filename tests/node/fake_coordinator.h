#pragma once

// A coordinator for tests of nodes: welcomes whoever joins, answers beats, gives the orders that
// the test gives, and keeps the last report of each node.

#include <grpcpp/channel.h>
#include <grpcpp/server.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/wire/capability.h"
#include "shardline/v1/join.grpc.pb.h"

namespace shardline::testing {

// What the test knows of a node.
struct JoinedNode {
  v1::NodeHello hello;
  uint64_t incarnation = 0;
  v1::ShardReport report;
  v1::Heartbeat beat;
};

class FakeCoordinator : public v1::Coordinator::Service {
 public:
  FakeCoordinator();
  ~FakeCoordinator() override;

  const std::string& address() const { return address_; }

  // Of every incarnation: what OPENs and FENCEs must be signed with.
  static const CapabilityKey& key();

  // Of the next welcomes.
  void SetTerm(uint64_t term);
  // Answers the next hello of `node_id` with this, in place of a welcome.
  void RefuseOnce(const std::string& node_id, const absl::Status& status);

  // Dies and comes back on the same port without a memory.
  void Restart();

  // Waits until the node has joined and its shard is in `state`; the test fails if it never is.
  JoinedNode Await(const std::string& node_id, v1::ShardState state);

  // The same, of the shard of this plan.
  JoinedNode AwaitPlan(const std::string& node_id, uint64_t plan_epoch, v1::ShardState state);

  // Loses the node and cuts its stream; waits until it beats under a new incarnation, hence has
  // taken the welcome.
  JoinedNode LoseAndWelcomeBack(const std::string& node_id);

  // Waits until the node beats, hence has taken the welcome.
  void AwaitBeat(const std::string& node_id);

  // Waits until the node has every page free.
  void AwaitAllPagesFree(const std::string& node_id);

  // REQUIRES: the node has joined.
  void Order(const std::string& node_id, const v1::CoordinatorMessage& order);

  grpc::Status Join(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>* stream) override;

 private:
  using JoinStream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>;

  struct Member {
    JoinedNode node;
    JoinStream* stream = nullptr;
    grpc::ServerContext* context = nullptr;
    bool lost = false;   // The next welcome names a new incarnation.
    bool beats = false;  // Since the last welcome.
  };

  void StartServer();
  void Hear(const v1::NodeMessage& message, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::map<std::string, Member> members_ ABSL_GUARDED_BY(mu_);
  uint64_t incarnation_next_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t term_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<std::string, absl::Status> refusals_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::string address_;
};

}  // namespace shardline::testing
