// Nodes that die for good: their layers go to others, and the answers stay the same, bit for bit.

#include <signal.h>

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;

constexpr absl::Duration kHealsWithin = absl::Seconds(30);

class ReplanTest : public ::testing::Test {
 protected:
  void Load(uint32_t shards, uint32_t replicas = 1) {
    v1::LoadModelRequest request;
    request.set_path(MakeTinyLlama(cluster_.directory(), {.layers = 6, .context = 512}));
    request.set_name("tiny");
    request.set_shards(shards);
    request.set_replicas(replicas);
    ASSERT_THAT(cluster_.LoadModel(request), IsOk());
    whole_ = Ask();
    ASSERT_THAT(whole_.status, IsOk());
  }
  Answer Ask() { return cluster_.Generate(Greedy("abcdef", 24)); }
  void ExpectTheSameAnswer() {
    const Answer again = Ask();
    ASSERT_THAT(again.status, IsOk());
    EXPECT_THAT(again.tokens, ElementsAreArray(whole_.tokens));
    EXPECT_THAT(again.digests, ElementsAreArray(whole_.digests));
  }
  uint64_t PlanInForce() { return cluster_.Status().models(0).plan_epoch(); }
  bool ReadyUnderAPlanAbove(uint64_t plan) {
    return cluster_.Until(kHealsWithin, [plan](Cluster& c) {
      const v1::ClusterStatus status = c.Status();
      return status.models_size() == 1 && status.models(0).plan_epoch() > plan &&
             status.models(0).state() == v1::MODEL_STATE_READY;
    });
  }
  // The nodes that hold layers, in order of their layers.
  std::vector<std::string> Holders() {
    std::map<int, std::string> by_layer;
    const v1::NodeList nodes = cluster_.ListNodes();
    for (const v1::NodeSummary& node : nodes.nodes()) {
      if (!node.model().empty()) by_layer[node.layers().begin()] = node.node_id();
    }
    std::vector<std::string> holders;
    for (const auto& [layer, node] : by_layer) holders.push_back(node);
    return holders;
  }

  Cluster cluster_{{.nodes = 3}};
  Answer whole_;
};

TEST_F(ReplanTest, WhatIsLeftTakesTheLayersOfADeadNodeAndAReturnedNodeThoseOfTheNext) {
  ASSERT_NO_FATAL_FAILURE(Load(3));
  uint64_t plan = PlanInForce();
  cluster_.node(1).Signal(SIGKILL);
  ASSERT_TRUE(ReadyUnderAPlanAbove(plan)) << cluster_.Status().DebugString();
  EXPECT_EQ(Holders().size(), 2u);
  ExpectTheSameAnswer();

  // Too late for its layers: a spare, until another dies.
  cluster_.StartNode(1);
  ASSERT_TRUE(
      cluster_.Until(kHealsWithin, [](Cluster& c) { return c.Status().nodes_ready() == 3; }));
  plan = PlanInForce();
  ExpectTheSameAnswer();
  EXPECT_EQ(Holders().size(), 2u);
  cluster_.node(0).Signal(SIGKILL);
  ASSERT_TRUE(ReadyUnderAPlanAbove(plan)) << cluster_.Status().DebugString();
  EXPECT_THAT(Holders(), ::testing::ElementsAre("node-b", "node-c"));
  ExpectTheSameAnswer();
}

TEST_F(ReplanTest, AReplicaServesOnWithoutAnotherPlan) {
  ASSERT_NO_FATAL_FAILURE(Load(1, 2));
  const uint64_t plan = PlanInForce();
  ASSERT_TRUE(cluster_.Until(kHealsWithin, [](Cluster& c) { return c.Status().healthy(); }));
  cluster_.node(0).Signal(SIGKILL);
  ASSERT_TRUE(
      cluster_.Until(kHealsWithin, [](Cluster& c) { return c.Status().nodes_lost() == 1; }));
  for (int i = 0; i < 3; ++i) ExpectTheSameAnswer();
  EXPECT_EQ(PlanInForce(), plan);
}

}  // namespace
}  // namespace shardline::testing
