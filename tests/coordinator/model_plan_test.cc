// Plans as the store keeps them, and the plan that follows on one that has lost something.

#include "coordinator/model_plan.h"

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

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Twelve layers of 100 MiB, 1 KiB of KV a token and layer.
ModelFile TwelveLayers() {
  ModelFile file;
  file.path = "models/twelve.gguf";
  file.name = "twelve";
  file.id = ModelId("sha256:12");
  file.hyper.layer_count = 12;
  file.hyper.context_length = 2048;
  file.costs.layer_bytes.assign(12, 100 * kMiB);
  file.costs.embedding_bytes = 50 * kMiB;
  file.costs.kv_bytes_per_token_layer = 1024;
  return file;
}

NodeCost Node(const std::string& id, uint64_t mib) {
  return NodeCost{.node = NodeId(id), .memory_bytes = mib * kMiB, .read_bytes_per_s = 1e10};
}

std::vector<std::string> MapOf(const ModelPlan& plan) {
  std::vector<std::string> map;
  for (const PlannedShard& shard : plan.plan.shards) {
    map.push_back(shard.node.value() + " " + std::to_string(shard.layers.begin) + "-" +
                  std::to_string(shard.layers.end));
  }
  return map;
}

class ModelPlanTest : public ::testing::Test {
 protected:
  ModelPlan InForce(const ModelWish& wish, const std::vector<NodeCost>& nodes) {
    absl::StatusOr<PlacedModel> placed = PlaceModel(file_, wish, nodes);
    EXPECT_THAT(placed, IsOk());
    placed->plan.plan.epoch = PlanEpoch(1);
    return placed->plan;
  }

  const ModelFile file_ = TwelveLayers();
  const NodeCost a_ = Node("a", 2000);
  const NodeCost b_ = Node("b", 2000);
  const NodeCost c_ = Node("c", 2000);
};

TEST_F(ModelPlanTest, TheStoreGivesBackWhatItWasGivenTheWishIncluded) {
  const ModelWish wish{.name = "mine",
                       .context_tokens_max = 512,
                       .shards = 0,
                       .ranges = {{0, 3}, {3, 12}},
                       .sessions_max = 2,
                       .replicas = 2,
                       .chunk_tokens_max = 512};
  const ModelPlan plan = InForce(wish, {a_, b_, c_, Node("d", 2000)});
  const auto parsed = ParseModelPlan(PlanEpoch(1), SerializeModelPlan(plan));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->wish, wish);
  EXPECT_EQ(parsed->plan.replicas, 2);
  EXPECT_EQ(SerializeModelPlan(*parsed), SerializeModelPlan(plan));
  EXPECT_THAT(MapOf(*parsed), ElementsAre("a 0-3", "c 0-3", "b 3-12", "d 3-12"));
}

TEST_F(ModelPlanTest, APlanOfAnEarlierVersionIsReadWithoutAWish) {
  std::string text = SerializeModelPlan(InForce({}, {a_}));
  text.resize(text.find(",\"replicas\""));
  const std::string shard =
      R"(,"shards":[{"node":"a","begin":0,"end":12,"is_head":true,"bytes":1}]})";
  const auto parsed = ParseModelPlan(PlanEpoch(1), text + shard);
  ASSERT_THAT(parsed, IsOk()) << parsed.status();
  EXPECT_EQ(parsed->wish, ModelWish{});
  EXPECT_EQ(parsed->plan.replicas, 1);
}

TEST_F(ModelPlanTest, TheLargestPieceIsTheWishesAndEachNodeKeepsRoomForIt) {
  EXPECT_EQ(InForce({.shards = 1}, {a_}).chunk_tokens_max, 256);
  ModelFile wide = TwelveLayers();
  wide.hyper.hidden_dim = 4096;
  const auto scratch_of = [&](int32_t chunk_tokens_max) {
    const ModelWish wish = {.context_tokens_max = 256, .chunk_tokens_max = chunk_tokens_max};
    return PlaceModel(wide, wish, {Node("small", 1400)}).status();
  };
  EXPECT_THAT(scratch_of(512), IsOk());
  EXPECT_TRUE(absl::IsResourceExhausted(scratch_of(4096)));
  const ModelPlan plan = InForce({.shards = 2, .chunk_tokens_max = 17}, {a_, b_});
  EXPECT_EQ(plan.chunk_tokens_max, 17);
  const auto next = PlaceAgain(file_, plan, {.lost = {{0, 12}}}, {}, {a_, c_});
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(next->plan.chunk_tokens_max, 17);
}

TEST_F(ModelPlanTest, AnIdleNodeWithRoomTakesTheLostRangeAndTheOthersStay) {
  const ModelPlan plan = InForce({.shards = 2}, {a_, b_});
  const auto next = PlaceAgain(file_, plan, {.lost = {{6, 12}}}, {c_}, {a_, c_});
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT(MapOf(next->plan), ElementsAre("a 0-6", "c 6-12"));
  EXPECT_EQ(next->plan.context_tokens_max, plan.context_tokens_max);
  EXPECT_EQ(next->plan.kv_pages, plan.kv_pages);
  EXPECT_EQ(next->explanation, "c: takes layers 6-11");
}

TEST_F(ModelPlanTest, ReplicasOfOtherRangesStayWhereTheyAre) {
  ModelPlan plan = InForce({.shards = 2, .replicas = 2}, {a_, b_, c_, Node("d", 2000)});
  ASSERT_THAT(MapOf(plan), ElementsAre("a 0-6", "c 0-6", "b 6-12", "d 6-12"));
  const NodeCost e = Node("e", 2000);
  const auto next = PlaceAgain(file_, plan, {.lost = {{6, 12}}}, {e}, {a_, c_, e});
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT(MapOf(next->plan), ElementsAre("a 0-6", "c 0-6", "e 6-12"));
  EXPECT_EQ(next->plan.plan.replicas, 2);
}

TEST_F(ModelPlanTest, WithoutAnIdleNodeTheWholeModelIsPlacedWithLessOfTheWish) {
  const ModelPlan plan = InForce({.shards = 3, .replicas = 1}, {a_, b_, c_});
  const auto two = PlaceAgain(file_, plan, {.lost = {{4, 8}}}, {}, {a_, c_});
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(MapOf(two->plan), ElementsAre("a 0-6", "c 6-12"));
  EXPECT_EQ(two->plan.wish, plan.wish);  // For the day when there are three again.
  const auto one = PlaceAgain(file_, plan, {.lost = {{4, 12}}}, {}, {a_});
  ASSERT_THAT(one, IsOk());
  EXPECT_THAT(MapOf(one->plan), ElementsAre("a 0-12"));
}

TEST_F(ModelPlanTest, AnIdleNodeTooSmallForTheRangeStillTakesPartInTheWhole) {
  const ModelPlan plan = InForce({.shards = 2}, {a_, b_});
  const NodeCost small = Node("small", 400);
  const NodeCost tight = Node("a", 1200);
  const auto next = PlaceAgain(file_, plan, {.lost = {{6, 12}}}, {small}, {tight, small});
  ASSERT_THAT(next, IsOk()) << next.status();
  EXPECT_EQ(next->plan.plan.shards.size(), 2u);
}

TEST_F(ModelPlanTest, TheContextShrinksOnlyIfNobodyAskedForIt) {
  // 1,250 MiB of weights; 4 contexts of 2,048 tokens take 96 MiB more on one node.
  const NodeCost tight = Node("a", 1340);
  const ModelPlan free = InForce({.shards = 2}, {a_, b_});
  const auto shrunk = PlaceAgain(file_, free, {.lost = {{6, 12}}}, {}, {tight});
  ASSERT_THAT(shrunk, IsOk()) << shrunk.status();
  EXPECT_EQ(shrunk->plan.context_tokens_max, 1024);
  const ModelPlan asked = InForce({.context_tokens_max = 2048, .shards = 2}, {a_, b_});
  EXPECT_THAT(PlaceAgain(file_, asked, {.lost = {{6, 12}}}, {}, {tight}),
              StatusHas(absl::StatusCode::kResourceExhausted, HasSubstr("a has 1.3 GiB free")));
}

TEST_F(ModelPlanTest, ADeadLinkMeansAnotherOrderOrFewerNodes) {
  const ModelPlan three = InForce({.shards = 3}, {a_, b_, c_});
  const PlanLoss cut{.lost = {}, .avoid_links = {{NodeId("a"), NodeId("b")}}};
  const auto turned = PlaceAgain(file_, three, cut, {}, {a_, b_, c_});
  ASSERT_THAT(turned, IsOk());
  EXPECT_THAT(MapOf(turned->plan), ElementsAre("a 0-4", "c 4-8", "b 8-12"));
  const ModelPlan two = InForce({.shards = 2}, {a_, b_});
  const auto alone = PlaceAgain(file_, two, cut, {}, {a_, b_});
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ(alone->plan.plan.shards.size(), 1u);
  EXPECT_THAT(PlaceAgain(file_, two, cut, {}, {Node("a", 800), Node("b", 800)}),
              FailsWith(FailureKind::kOverloaded));
}

TEST_F(ModelPlanTest, WithoutAnyNodeThereIsNoPlan) {
  const ModelPlan plan = InForce({.shards = 2}, {a_, b_});
  EXPECT_THAT(PlaceAgain(file_, plan, {.lost = {{0, 6}, {6, 12}}}, {}, {}),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("no node is ready")));
}

}  // namespace
}  // namespace shardline
