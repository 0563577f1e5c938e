// Models that outlive their nodes: replicas, spares, and layers placed again. Real gRPC, fake
// nodes.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ReplanTest : public ::testing::Test {
 protected:
  void StartWith(const std::vector<FakeNode*>& nodes) {
    ASSERT_THAT(cluster_.Start(), IsOk());
    for (FakeNode* node : nodes) {
      node->SetAnswer({.tokens = ByteTokens("hello")});
      node->Join(cluster_.port());
    }
    ASSERT_TRUE(cluster_.WaitUntilNodes(static_cast<uint32_t>(nodes.size())));
  }
  // "node-a 0-4" for each shard of the layer map.
  std::vector<std::string> Map() {
    std::vector<std::string> map;
    const v1::ShardList list = cluster_.Shards();
    for (const v1::ShardSummary& shard : list.shards()) {
      map.push_back(shard.node_id() + " " + std::to_string(shard.layers().begin()) + "-" +
                    std::to_string(shard.layers().end()));
    }
    return map;
  }
  bool WaitUntilReadyUnder(uint64_t plan_at_least) {
    return cluster_.WaitUntil([plan_at_least](const v1::ClusterStatus& status) {
      return status.models_size() == 1 && status.models(0).state() == v1::MODEL_STATE_READY &&
             status.models(0).plan_epoch() >= plan_at_least;
    });
  }

  TestCluster cluster_;
  FakeNode a_{{.id = "node-a"}};
  FakeNode b_{{.id = "node-b"}};
  FakeNode c_{{.id = "node-c"}};
  FakeNode d_{{.id = "node-d"}};
};

TEST_F(ReplanTest, AReplicaTakesOverAtOnce) {
  StartWith({&a_, &b_, &c_, &d_});
  v1::LoadModelRequest request;
  request.set_shards(2);
  request.set_replicas(2);
  ASSERT_THAT(cluster_.LoadAs(request), IsOk());
  ASSERT_TRUE(cluster_.WaitUntil([](const v1::ClusterStatus& s) { return s.healthy(); }));
  EXPECT_THAT(Map(), UnorderedElementsAre("node-a 0-2", "node-c 0-2", "node-b 2-4", "node-d 2-4"));
  a_.Leave();
  ASSERT_TRUE(cluster_.WaitUntilNodes(3));
  EXPECT_EQ(cluster_.Status().models(0).state(), v1::MODEL_STATE_READY);
  for (int i = 0; i < 3; ++i) {
    const Answer answer = cluster_.Generate("hi");
    EXPECT_EQ(answer.text, "hello") << answer.status;
    EXPECT_EQ(answer.started.route(0).node_id(), "node-c");
  }
  const v1::ClusterStatus status = cluster_.Status();
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_THAT(status.problems(0), HasSubstr("layers 0-1 have 1 of 2 replicas: node-a"));
}

TEST_F(ReplanTest, AnIdleNodeGetsTheLayersOfALostOne) {
  cluster_.options().replan_after = absl::Milliseconds(100);
  StartWith({&a_, &b_, &c_});
  ASSERT_THAT(cluster_.Load(2), IsOk());
  EXPECT_THAT(Map(), UnorderedElementsAre("node-a 0-2", "node-b 2-4"));
  b_.Leave();
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  EXPECT_THAT(Map(), UnorderedElementsAre("node-a 0-2", "node-c 2-4"));
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
  // Back too late: a spare.
  b_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilNodes(3));
  EXPECT_EQ(b_.loads().size(), 1u);
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(ReplanTest, WithoutAnIdleNodeTheModelIsPlacedOverThoseThatAreLeft) {
  cluster_.options().replan_after = absl::Milliseconds(100);
  StartWith({&a_, &b_, &c_});
  ASSERT_THAT(cluster_.Load(3), IsOk());
  b_.Leave();
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  const std::vector<std::string> map = Map();
  EXPECT_THAT(map, UnorderedElementsAre("node-a 0-2", "node-c 2-4"));
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(ReplanTest, ANodeThatComesBackFirstKeepsItsLayers) {
  cluster_.options().replan_after = absl::Seconds(60);
  StartWith({&a_, &b_, &c_});
  ASSERT_THAT(cluster_.Load(2), IsOk());
  b_.Leave();
  ASSERT_TRUE(cluster_.WaitUntilNodes(2));
  b_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilReady());
  EXPECT_THAT(Map(), UnorderedElementsAre("node-a 0-2", "node-b 2-4"));
  EXPECT_EQ(cluster_.Status().models(0).plan_epoch(), 1u);
}

TEST_F(ReplanTest, WithoutRoomTheModelWaitsWithTheArithmeticUntilANodeJoins) {
  cluster_.options().replan_after = absl::Milliseconds(100);
  // Each has room for its half and no more.
  FakeNode small_a({.id = "small-a", .memory_bytes = uint64_t{67} << 19});
  FakeNode small_b({.id = "small-b", .memory_bytes = uint64_t{67} << 19});
  StartWith({&small_a, &small_b});
  ASSERT_THAT(cluster_.Load(2), IsOk());
  small_b.Leave();
  const auto explained = [](const v1::ClusterStatus& status) {
    return std::any_of(status.problems().begin(), status.problems().end(),
                       [](const std::string& problem) {
                         return problem.find("cannot be placed again") != std::string::npos &&
                                problem.find("small-a has 33.5 MiB free") != std::string::npos;
                       });
  };
  EXPECT_TRUE(cluster_.WaitUntil(explained));
  c_.SetAnswer({.tokens = ByteTokens("hello")});
  c_.Join(cluster_.port());
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(ReplanTest, ARestartedCoordinatorTakesUpEveryModel) {
  StartWith({&a_, &b_});
  for (const char* name : {"one", "two"}) {
    v1::LoadModelRequest request;
    request.set_name(name);
    ASSERT_THAT(cluster_.LoadAs(request), IsOk());
  }
  a_.Leave();
  b_.Leave();
  cluster_.Stop();
  ASSERT_THAT(cluster_.Start(), IsOk());
  a_.Rejoin(cluster_.port());
  b_.Rejoin(cluster_.port());
  const auto both_ready = [](const v1::ClusterStatus& status) {
    return status.models_size() == 2 &&
           std::all_of(status.models().begin(), status.models().end(),
                       [](const auto& model) { return model.state() == v1::MODEL_STATE_READY; });
  };
  EXPECT_TRUE(cluster_.WaitUntil(both_ready)) << cluster_.Status().DebugString();
  EXPECT_EQ(a_.loads().size() + b_.loads().size(), 2u);
}

TEST_F(ReplanTest, OfTwoPlansOfOneModelInTheStoreTheNewerIsTakenUpAndTheOtherForgotten) {
  StartWith({&a_});
  ASSERT_THAT(cluster_.Load(1), IsOk());
  a_.Leave();
  cluster_.Stop();
  {  // It died after storing another plan, before forgetting this one.
    std::unique_ptr<Store> store = *OpenSqliteStore(cluster_.store_path());
    const Term term = *store->BeginTerm();
    const std::string text = store->Plans()->at(0).text;
    ASSERT_EQ(*store->CreatePlan(term, text), PlanEpoch(2));
  }
  ASSERT_THAT(cluster_.Start(), IsOk());
  a_.Rejoin(cluster_.port());
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  cluster_.Stop();
  std::unique_ptr<Store> store = *OpenSqliteStore(cluster_.store_path());
  EXPECT_EQ(store->Plans()->size(), 1u);
}

TEST_F(ReplanTest, ARestartedCoordinatorServesByTheNewPlan) {
  cluster_.options().replan_after = absl::Milliseconds(100);
  StartWith({&a_, &b_, &c_});
  ASSERT_THAT(cluster_.Load(2), IsOk());
  b_.Leave();
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  a_.Leave();
  c_.Leave();
  cluster_.Stop();
  ASSERT_THAT(cluster_.Start(), IsOk());
  a_.Rejoin(cluster_.port());
  c_.Rejoin(cluster_.port());
  ASSERT_TRUE(WaitUntilReadyUnder(2));
  EXPECT_THAT(Map(), UnorderedElementsAre("node-a 0-2", "node-c 2-4"));
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

}  // namespace
}  // namespace shardline::testing
