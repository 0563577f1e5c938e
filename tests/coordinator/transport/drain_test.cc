// Nodes taken out of service, and requests that find no room: real gRPC, fake models.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

class DrainTest : public ::testing::Test {
 protected:
  // Two replicas of the whole model; each stops after `first`.
  void StartReady(const std::string& first) {
    ASSERT_THAT(cluster_.Start(), IsOk());
    for (FakeNode* node : {&a_, &b_}) {
      node->Join(cluster_.port());
      node->SetAnswer({.tokens = ByteTokens(first), .then_hang = true});
    }
    ASSERT_TRUE(cluster_.WaitUntilNodes(2));
    v1::LoadModelRequest request;
    request.set_shards(1);
    request.set_replicas(2);
    ASSERT_THAT(cluster_.LoadAs(request), IsOk());
    // Both are proven by now.
    ASSERT_TRUE(cluster_.WaitUntil([](const v1::ClusterStatus& s) { return s.healthy(); }));
  }
  // A stream, read up to its second token; says which node it runs on.
  std::unique_ptr<ClientCall> Stream(std::string* node) {
    std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
    v1::GenerateEvent event;
    EXPECT_TRUE(call->Read(&event));
    *node = event.started().route(0).node_id();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(call->Read(&event));
    return call;
  }
  // The rest of it; "" if it failed.
  static std::string Rest(ClientCall& call, int* restarts) {
    std::string text;
    v1::GenerateEvent event;
    while (call.Read(&event)) {
      if (event.has_token()) text += event.token().text();
      if (event.has_end()) text += event.end().text();
      if (event.has_restarted()) ++*restarts;
    }
    EXPECT_THAT(call.Finish(), IsOk());
    return text;
  }
  FakeNode& NodeOf(const std::string& id) { return id == "node-a" ? a_ : b_; }
  FakeNode& OtherThan(const std::string& id) { return id == "node-a" ? b_ : a_; }

  TestCluster cluster_;
  FakeNode a_{{.id = "node-a"}};
  FakeNode b_{{.id = "node-b"}};
};

TEST_F(DrainTest, ACordonedNodeGetsNoNewSessionsAndKeepsThoseItHas) {
  StartReady("he");
  std::string node;
  const std::unique_ptr<ClientCall> call = Stream(&node);
  ASSERT_THAT(cluster_.Cordon(node), IsOk());
  OtherThan(node).SetAnswer({.tokens = ByteTokens("hello")});
  for (int i = 0; i < 4; ++i) {
    const Answer answer = cluster_.Generate("hi");
    ASSERT_THAT(answer.status, IsOk());
    EXPECT_NE(answer.started.route(0).node_id(), node);
  }
  EXPECT_EQ(NodeOf(node).fences().size(), 1u);  // Of the probe alone.
  call->Cancel();
  ASSERT_THAT(cluster_.Uncordon(node), IsOk());
  NodeOf(node).SetAnswer({.tokens = ByteTokens("hello")});
  int there = 0;
  for (int i = 0; i < 4; ++i) {
    there += cluster_.Generate("hi").started.route(0).node_id() == node ? 1 : 0;
  }
  EXPECT_GT(there, 0);
}

TEST_F(DrainTest, WhatRunsOnADrainedNodeGoesOnElsewhereWithoutAChangedToken) {
  StartReady("he");
  std::string node;
  const std::unique_ptr<ClientCall> call = Stream(&node);
  OtherThan(node).SetAnswer({.tokens = ByteTokens("hello")});
  const absl::StatusOr<v1::NodeSummary> drained = cluster_.Drain(node, 0, /*wait=*/true);
  ASSERT_THAT(drained, IsOk());
  EXPECT_EQ(drained->duty(), v1::NODE_DUTY_DRAINED);
  int restarts = 0;
  EXPECT_EQ(Rest(*call, &restarts), "llo");
  EXPECT_EQ(restarts, 1);
}

TEST_F(DrainTest, ANodeThatSaysItLeavesIsDrainedByItsOwnDeadline) {
  StartReady("he");
  std::string node;
  const std::unique_ptr<ClientCall> call = Stream(&node);
  OtherThan(node).SetAnswer({.tokens = ByteTokens("hello")});
  NodeOf(node).SetDraining(50);
  int restarts = 0;
  EXPECT_EQ(Rest(*call, &restarts), "llo");
  EXPECT_EQ(restarts, 1);
}

TEST_F(DrainTest, ADrainThatWouldUncoverLayersIsRefusedUnlessForced) {
  StartReady("he");
  ASSERT_THAT(cluster_.Drain("node-a", 0, /*wait=*/true), IsOk());
  const absl::Status second = cluster_.Drain("node-b", 0, /*wait=*/false).status();
  EXPECT_THAT(second, StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("layers 0-3")));
  ASSERT_THAT(cluster_.Drain("node-b", 0, /*wait=*/false, /*force=*/true), IsOk());
  const Answer answer = cluster_.Generate("hi");
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("is drained, and no other node"));
  EXPECT_EQ(cluster_.Drain("node-x", 0, false).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DrainTest, ARequestThatFindsNoRoomWaitsForIt) {
  StartReady("he");
  for (FakeNode* node : {&a_, &b_}) {
    node->SetAnswer({.tokens = ByteTokens("hello")});
    node->RefuseOpens(MakeFailure(FailureKind::kKvExhausted, "0 pages free"));
  }
  Answer answer;
  std::thread client([&] { answer = cluster_.Generate("hi"); });
  EXPECT_TRUE(cluster_.WaitUntilSession(
      [](const v1::SessionSummary& s) { return s.phase() == "waiting in the queue"; }));
  for (FakeNode* node : {&a_, &b_}) node->RefuseOpens(absl::OkStatus());
  client.join();
  EXPECT_THAT(answer.status, IsOk());
  EXPECT_EQ(answer.text, "hello");
}

TEST_F(DrainTest, AStoppedCoordinatorLetsARunningRequestEnd) {
  StartReady("he");
  std::string node;
  cluster_.options().drain = absl::Seconds(10);
  const std::unique_ptr<ClientCall> call = Stream(&node);
  int restarts = 0;
  std::string rest;
  OtherThan(node).SetAnswer({.tokens = ByteTokens("hello")});
  std::thread client([&] { rest = Rest(*call, &restarts); });
  NodeOf(node).SetDraining(0);  // It goes on elsewhere, to its end.
  cluster_.Shutdown();
  client.join();
  EXPECT_EQ(rest, "llo");
}

}  // namespace
}  // namespace shardline::testing
