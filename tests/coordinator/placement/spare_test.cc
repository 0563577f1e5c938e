// What a placement does for the day a node or a link is lost, and against noise.

#include <random>

#include "coordinator/placement/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1024 * 1024;

ModelCost TenLayers() {
  return ModelCost{.name = "ten",
                   .layer_bytes = std::vector<uint64_t>(10, 100 * kMiB),
                   .embedding_bytes = 50 * kMiB,
                   .kv_bytes_per_token_layer = 1024,
                   .scratch_bytes = 10 * kMiB,
                   .context_tokens = 1024,
                   .sessions = 2};
}

NodeCost Node(const std::string& id, uint64_t mib, double gib_per_s = 10,
              const std::string& device = "") {
  return NodeCost{.node = NodeId(id),
                  .memory_bytes = mib * kMiB,
                  .read_bytes_per_s = gib_per_s * 1024 * 1024 * 1024,
                  .threads = 4,
                  .device = device};
}

std::vector<std::string> MapOf(const std::vector<PlacedShard>& shards) {
  std::vector<std::string> map;
  for (const PlacedShard& shard : shards) {
    map.push_back(shard.node.value() + " " + std::to_string(shard.layers.begin) + "-" +
                  std::to_string(shard.layers.end));
  }
  return map;
}

TEST(PlacementReplicas, EveryRangeGetsSoManyNodesOfItsOwn) {
  const std::vector<NodeCost> nodes = {Node("a", 4000), Node("b", 4000), Node("c", 4000),
                                       Node("d", 4000), Node("e", 4000)};
  const auto placement = Place(TenLayers(), nodes, {.shards = 2, .replicas = 2});
  ASSERT_THAT(placement, IsOk());
  EXPECT_THAT(MapOf(placement->shards), ElementsAre("a 0-5", "c 0-5", "b 5-10", "d 5-10"));
  EXPECT_TRUE(placement->shards[1].is_head);
  EXPECT_FALSE(placement->shards[3].is_head);
  // A replica takes no time of a step.
  const auto one = Place(TenLayers(), nodes, {.shards = 2});
  EXPECT_EQ(placement->step_time, one->step_time);
}

TEST(PlacementReplicas, ReplicasAreHeldToTheSameMemory) {
  // b and c have room for layers but not for the head's tables.
  const std::vector<NodeCost> nodes = {Node("a", 570), Node("b", 520), Node("c", 520),
                                       Node("d", 570)};
  ModelCost model = TenLayers();
  model.kv_bytes_per_token_layer = 0;
  const auto placement = Place(model, nodes, {.shards = 2, .replicas = 2});
  ASSERT_THAT(placement, IsOk()) << placement.status();
  for (const PlacedShard& shard : placement->shards) {
    EXPECT_EQ(shard.is_head, shard.node == NodeId("a") || shard.node == NodeId("d"));
  }
}

TEST(PlacementReplicas, TooFewNodesAreCountedOutBeforehandAndTooLittleMemoryIsNamed) {
  const std::vector<NodeCost> three = {Node("a", 4000), Node("b", 4000), Node("c", 4000)};
  EXPECT_THAT(Place(TenLayers(), three, {.shards = 2, .replicas = 2}),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("2 ranges on 2 nodes each need 4 nodes, 3 are ready and free")));
  EXPECT_THAT(Place(TenLayers(), {Node("a", 4000), Node("b", 20)}, {.replicas = 2}),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("2 nodes do not hold each range 2 times")));
  for (const int32_t replicas : {0, -1, 65}) {
    EXPECT_THAT(Place(TenLayers(), three, {.replicas = replicas}),
                FailsWith(FailureKind::kInvalidRequest));
  }
}

TEST(PlacementLinks, AnotherOrderKeepsABadLinkOutOfTheRing) {
  const std::vector<NodeCost> nodes = {Node("a", 4000), Node("b", 4000), Node("c", 4000)};
  const auto before = Place(TenLayers(), nodes, {.shards = 3});
  ASSERT_EQ(before->shards[1].node, NodeId("b"));
  const auto after =
      Place(TenLayers(), nodes, {.shards = 3, .avoid_links = {{NodeId("a"), NodeId("b")}}});
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->shards[0].node, NodeId("a"));
  EXPECT_EQ(after->shards[1].node, NodeId("c"));
  EXPECT_EQ(after->shards[2].node, NodeId("b"));
  // The way back to the head is a link too.
  const auto back =
      Place(TenLayers(), nodes,
            {.shards = 3, .avoid_links = {{NodeId("a"), NodeId("b")}, {NodeId("b"), NodeId("a")}}});
  EXPECT_THAT(back, StatusHas(absl::StatusCode::kResourceExhausted,
                              HasSubstr("every ring over 3 of 3 nodes has a link that is not")));
}

TEST(PlacementLinks, TwoNodesUseBothLinksSoAnotherNodeOrOneAloneIsTaken) {
  const std::vector<AvoidedLink> cut = {{NodeId("a"), NodeId("b")}};
  const auto three =
      Place(TenLayers(), {Node("a", 700), Node("b", 700), Node("c", 700)}, {.avoid_links = cut});
  ASSERT_THAT(three, IsOk());
  EXPECT_EQ(three->shards.size(), 2U);
  const auto fixed = Place(TenLayers(), {Node("a", 700), Node("b", 700), Node("c", 700)},
                           {.ranges = {{0, 5}, {5, 10}}, .avoid_links = cut});
  EXPECT_THAT(fixed, FailsWith(FailureKind::kOverloaded));  // Its nodes are given by speed.
  EXPECT_EQ(
      Place(TenLayers(), {Node("a", 4000), Node("b", 4000)}, {.avoid_links = cut})->shards.size(),
      1U);
}

TEST(PlacementNoise, EqualMachinesGetEqualRangesWhateverTheirMeasuredSpeed) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> noise(10, 14.9);
  for (int draw = 0; draw < 200; ++draw) {
    std::vector<NodeCost> nodes;
    for (const char* id : {"a", "b"}) nodes.push_back(Node(id, 4000, noise(random), "cpu x4"));
    ModelCost model = TenLayers();
    const auto placement = Place(model, nodes, {.shards = 2});
    ASSERT_THAT(placement, IsOk());
    ASSERT_THAT(MapOf(placement->shards), ElementsAre("a 0-5", "b 5-10"));
  }
}

TEST(PlacementNoise, AnotherDeviceOrARealDifferenceStillCounts) {
  const auto devices = Place(
      TenLayers(), {Node("a", 4000, 10, "cpu x4"), Node("b", 4000, 14, "cpu x8")}, {.shards = 2});
  EXPECT_EQ(devices->shards[0].node, NodeId("b"));
  const auto speeds = Place(
      TenLayers(), {Node("a", 4000, 10, "cpu x4"), Node("b", 4000, 15.1, "cpu x4")}, {.shards = 2});
  EXPECT_EQ(speeds->shards[0].node, NodeId("b"));
  EXPECT_GT(speeds->shards[0].layers.count(), 5);
}

TEST(PlacementSingly, SingleRangesFindNodesOfTheirOwnOrAreExplained) {
  const auto shards =
      PlaceSingly(TenLayers(), {{2, 5}, {5, 10}}, {Node("small", 400, 50), Node("large", 600)});
  ASSERT_THAT(shards, IsOk());
  EXPECT_THAT(MapOf(*shards), ElementsAre("small 2-5", "large 5-10"));
  EXPECT_THAT(PlaceSingly(TenLayers(), {{5, 10}}, {Node("small", 400)}),
              StatusHas(absl::StatusCode::kResourceExhausted, HasSubstr("small has 400.0 MiB")));
  EXPECT_THAT(PlaceSingly(TenLayers(), {{5, 11}}, {Node("large", 4000)}),
              FailsWith(FailureKind::kInvalidRequest));
}

}  // namespace
}  // namespace shardline
