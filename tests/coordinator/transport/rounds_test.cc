// How many rounds in flight the coordinator tells a head, from what nodes say of themselves.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

// What the head of a ring of two such nodes is told for a request.
v1::RunAttemptRequest ToldBy(FakeNodeOptions node) {
  TestCluster cluster;
  node.id = "node-a";
  FakeNode a(node);
  node.id = "node-b";
  FakeNode b(node);
  EXPECT_THAT(cluster.Start(), IsOk());
  a.Join(cluster.port());
  b.Join(cluster.port());
  EXPECT_TRUE(cluster.WaitUntilNodes(2));
  a.SetAnswer({.tokens = ByteTokens("hello")});
  EXPECT_THAT(cluster.Load(2), IsOk());
  EXPECT_THAT(cluster.Generate("hi").status, IsOk());
  const std::vector<v1::RunAttemptRequest> runs = a.runs();
  EXPECT_EQ(runs.size(), 2U);  // The probe before it is told the same.
  for (const v1::RunAttemptRequest& run : runs) {
    EXPECT_EQ(run.rounds_in_flight(), runs.front().rounds_in_flight());
  }
  return runs.empty() ? v1::RunAttemptRequest() : runs.back();
}

TEST(RoundsInFlightTest, MachinesOfTheirOwnKeepOneMoreThanThereAreStages) {
  const v1::RunAttemptRequest told = ToldBy({.step_us = 6000, .row_us = 1500});
  EXPECT_EQ(told.rounds_in_flight(), 3U);
  EXPECT_DOUBLE_EQ(told.step_us(), 12'000);
  EXPECT_DOUBLE_EQ(told.row_us(), 3000);
}

TEST(RoundsInFlightTest, OneMachineKeepsOne) {
  EXPECT_EQ(ToldBy({.machine = "box", .step_us = 6000, .row_us = 1500}).rounds_in_flight(), 1U);
}

TEST(RoundsInFlightTest, WhatIsNotMeasuredIsNotTold) {
  const v1::RunAttemptRequest told = ToldBy({.row_us = -3});
  EXPECT_EQ(told.rounds_in_flight(), 3U);
  EXPECT_EQ(told.step_us(), 0);
  EXPECT_EQ(told.row_us(), 0);
}

}  // namespace
}  // namespace shardline::testing
