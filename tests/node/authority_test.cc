// Whom a node obeys: one coordinator, the newest, and only what that one has signed.

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/failure.h"
#include "node/node.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/link.grpc.pb.h"
#include "tests/node/fake_coordinator.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::FakeCoordinator;
using ::shardline::testing::JoinedNode;

class NoLoader : public ShardLoader {
 public:
  absl::StatusOr<LoadedShard> Load(const ShardOrder&, const Progress&) override {
    return absl::NotFoundError("nothing to load here");
  }
};

class AuthorityTest : public ::testing::Test {
 protected:
  void StartNode(const std::string& data_dir = "") {
    NodeOptions options;
    options.listen = "127.0.0.1:0";
    options.coordinator = coordinator_.address();
    options.node_id = NodeId("n");
    options.data_dir = data_dir;
    options.memory_bytes = 1 << 30;
    options.threads = 1;
    NodeEvents events;
    events.on_replaced = [this](const absl::Status& status) {
      replaced_status_ = status;
      replaced_.Notify();
    };
    node_ = Node::Start(options, &loader_, SystemClock(), std::move(events)).value();
  }

  // It said hello.
  JoinedNode AwaitJoined() { return coordinator_.Await("n", v1::SHARD_STATE_UNSPECIFIED); }

  absl::Status Open(const std::function<void(v1::OpenRequest&)>& change) {
    v1::OpenRequest request;
    request.set_session(1);
    request.set_epoch(1);
    request.set_term(1);
    request.set_incarnation(incarnation_);
    request.set_budget_ms(1000);
    request.set_capability(OpenCapability(FakeCoordinator::key(), request));
    change(request);
    grpc::ClientContext context;
    v1::OpenReply reply;
    return FromGrpcStatus(Stub()->Open(&context, request, &reply));
  }

  absl::Status Fence(const std::function<void(v1::FenceRequest&)>& change) {
    v1::FenceRequest request;
    request.set_session(1);
    request.set_epoch(1);
    request.set_term(1);
    request.set_incarnation(incarnation_);
    request.set_capability(FenceCapability(FakeCoordinator::key(), request));
    change(request);
    grpc::ClientContext context;
    v1::FenceReply reply;
    return FromGrpcStatus(Stub()->Fence(&context, request, &reply));
  }

  std::unique_ptr<v1::Shard::Stub> Stub() {
    return v1::Shard::NewStub(
        grpc::CreateChannel(node_->address(), grpc::InsecureChannelCredentials()));
  }

  FakeCoordinator coordinator_;
  NoLoader loader_;
  absl::Status replaced_status_;
  absl::Notification replaced_;
  uint64_t incarnation_ = 0;
  std::unique_ptr<Node> node_;
};

TEST_F(AuthorityTest, WhatTheCoordinatorHasNotSignedIsNotLookedAt) {
  StartNode();
  incarnation_ = AwaitJoined().incarnation;
  coordinator_.AwaitBeat("n");
  EXPECT_THAT(Open([](v1::OpenRequest& r) { r.clear_capability(); }),
              FailsWith(FailureKind::kUnauthorised));
  EXPECT_THAT(Open([](v1::OpenRequest& r) { r.set_epoch(1'000'000); }),
              FailsWith(FailureKind::kUnauthorised));
  EXPECT_THAT(Fence([](v1::FenceRequest& r) { r.clear_capability(); }),
              FailsWith(FailureKind::kUnauthorised));
  // A peer that could raise the fence would take a session from everybody.
  EXPECT_THAT(Fence([](v1::FenceRequest& r) { r.set_epoch(~uint64_t{0}); }),
              FailsWith(FailureKind::kUnauthorised));
  // What is signed is looked at: this node holds no shard.
  EXPECT_THAT(Open([](v1::OpenRequest&) {}), ::testing::Not(FailsWith(FailureKind::kUnauthorised)));
  EXPECT_TRUE(Fence([](v1::FenceRequest&) {}).ok());
}

TEST_F(AuthorityTest, ACoordinatorOfALowerTermIsRefusedAfterARestartOfTheNodeToo) {
  const std::string folder = ::testing::TempDir() + "authority_term";
  std::filesystem::remove_all(folder);
  coordinator_.SetTerm(9);
  StartNode(folder);
  coordinator_.AwaitBeat("n");
  node_.reset();
  coordinator_.SetTerm(8);
  coordinator_.Restart();
  StartNode(folder);
  const JoinedNode refused = AwaitJoined();  // It said hello; it never beats.
  EXPECT_EQ(refused.hello.term_seen(), 9U);
  EXPECT_FALSE(Fence([](v1::FenceRequest&) {}).ok());
  coordinator_.SetTerm(10);
  coordinator_.AwaitBeat("n");
  node_.reset();
  coordinator_.Restart();
  StartNode(folder);
  EXPECT_EQ(AwaitJoined().hello.term_seen(), 10U);
}

TEST_F(AuthorityTest, ANodeWhoseIdIsTakenSaysSo) {
  coordinator_.RefuseOnce(
      "n", MakeFailure({.kind = FailureKind::kStaleEpoch, .node = NodeId("n")}, "replaced"));
  StartNode();
  replaced_.WaitForNotification();
  EXPECT_THAT(replaced_status_, FailsWith(FailureKind::kStaleEpoch));
}

}  // namespace
}  // namespace shardline
