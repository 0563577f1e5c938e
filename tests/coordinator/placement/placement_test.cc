#include "coordinator/placement/placement.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1024 * 1024;

// 10 layers of 100 MiB, 50 MiB of embedding that is the output matrix too, 160 KiB x 16 KV a page.
ModelCost TenLayers() {
  return ModelCost{.name = "ten",
                   .layer_bytes = std::vector<uint64_t>(10, 100 * kMiB),
                   .embedding_bytes = 50 * kMiB,
                   .head_read_bytes = 50 * kMiB,
                   .kv_bytes_per_token_layer = 1024,
                   .scratch_bytes = 10 * kMiB,
                   .context_tokens = 1024,
                   .sessions = 2};
}

NodeCost Node(const std::string& id, uint64_t mib, double gib_per_s = 10) {
  return NodeCost{.node = NodeId(id),
                  .memory_bytes = mib * kMiB,
                  .read_bytes_per_s = gib_per_s * 1024 * 1024 * 1024,
                  .threads = 4};
}

TEST(Placement, AModelThatFitsOneNodeTakesTheFastestThatHoldsIt) {
  const auto placement =
      Place(TenLayers(), {Node("a", 4000, 5), Node("b", 500, 40), Node("c", 4000, 20)}, {});
  ASSERT_THAT(placement, IsOk());
  ASSERT_EQ(placement->shards.size(), 1U);
  EXPECT_EQ(placement->shards[0].node, NodeId("c"));
  EXPECT_EQ(placement->shards[0].layers, (LayerRange{0, 10}));
  EXPECT_TRUE(placement->shards[0].is_head);
  // 2 contexts of 64 pages; 1,000 + 50 MiB weights, 20 MiB KV, 10 MiB scratch.
  EXPECT_EQ(placement->kv_pages, 128);
  EXPECT_EQ(placement->shards[0].total_bytes, 1080 * kMiB);
  EXPECT_NEAR(absl::ToDoubleSeconds(placement->step_time), 1050.0 / (20 * 1024), 1e-6);
}

TEST(Placement, EveryContextIsRoundedUpToPagesByItself) {
  ModelCost model = TenLayers();
  model.context_tokens = 17;
  model.sessions = 3;
  EXPECT_EQ(model.kv_pages(), 6);
}

TEST(Placement, AskedForAllNodesItGivesTheFasterOnesMoreLayers) {
  const auto placement =
      Place(TenLayers(), {Node("a", 4000, 10), Node("b", 4000, 30)}, {.shards = 2});
  ASSERT_THAT(placement, IsOk());
  for (const PlacedShard& shard : placement->shards) {
    EXPECT_EQ(shard.layers.count(), shard.node == NodeId("b") ? 8 : 2) << placement->explanation;
  }
}

TEST(Placement, OneLayerANodeIsAllowedAndMoreNodesThanLayersAreNot) {
  std::vector<NodeCost> nodes;
  for (int i = 0; i < 11; ++i) nodes.push_back(Node("n" + std::to_string(i), 400));
  const auto placement = Place(TenLayers(), nodes, {.shards = 10});
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->shards.size(), 10U);
  EXPECT_THAT(Place(TenLayers(), nodes, {.shards = 11}), FailsWith(FailureKind::kInvalidRequest));
}

TEST(Placement, MoreShardsThanNodesWaitForNodes) {
  const std::vector<NodeCost> nodes = {Node("a", 4000), Node("b", 4000)};
  EXPECT_THAT(Place(TenLayers(), nodes, {.shards = 3}),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("3 shards need as many nodes, 2 are ready")));
  EXPECT_THAT(Place(TenLayers(), nodes, {.ranges = {{0, 3}, {3, 6}, {6, 10}}}),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("3 ranges need as many nodes, 2 are ready")));
}

TEST(Placement, AShortfallIsExplainedInNumbersForEveryNode) {
  const auto placement = Place(TenLayers(), {Node("a", 400), Node("b", 350)}, {});
  EXPECT_THAT(placement, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(placement,
              StatusHas(absl::StatusCode::kResourceExhausted,
                        AllOf(HasSubstr("1.0 GiB weights"), HasSubstr("20.0 MiB KV"),
                              HasSubstr("a has 400.0 MiB free: fits layers 0-2 of 10 as head"),
                              HasSubstr("b has 350.0 MiB free: fits layers 3-5 of 10"),
                              HasSubstr("short by 374.0 MiB"))));
}

TEST(Placement, ANodeThatHoldsNotOneLayerIsNamedWhenAllMustTakePart) {
  const auto placement = Place(TenLayers(), {Node("a", 4000), Node("b", 60)}, {.shards = 2});
  EXPECT_THAT(placement, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(placement, StatusHas(absl::StatusCode::kResourceExhausted,
                                   AllOf(HasSubstr("b has 60.0 MiB free: fits no layer"),
                                         HasSubstr("short by 52.0 MiB"))));
}

TEST(Placement, TheHeadGoesWhereItsTablesFit) {
  ModelCost model = TenLayers();
  model.embedding_bytes = 500 * kMiB;
  // The fast one has room for layers only.
  const auto placement = Place(model, {Node("fast", 560, 50), Node("slow", 1200, 5)}, {});
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->shards[0].node, NodeId("slow"));
}

TEST(Placement, ExplicitRangesAreKeptAndTheNodesMatchedToThem) {
  const PlacementOptions options{.ranges = {{0, 2}, {2, 10}}};
  const auto placement =
      Place(TenLayers(), {Node("small", 400, 50), Node("large", 2000, 5)}, options);
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->shards[0].node, NodeId("small"));
  EXPECT_EQ(placement->shards[1].node, NodeId("large"));
  EXPECT_EQ(placement->shards[1].layers, (LayerRange{2, 10}));
  EXPECT_THAT(
      Place(TenLayers(), {Node("a", 400), Node("b", 400)}, options),
      StatusHas(absl::StatusCode::kResourceExhausted,
                AllOf(HasSubstr("layers 2-9 need 826.0 MiB"), HasSubstr("b has 400.0 MiB free"))));
}

TEST(Placement, RangesThatDoNotTileTheModelAreRefused) {
  const std::vector<NodeCost> nodes = {Node("a", 4000), Node("b", 4000), Node("c", 4000)};
  const std::vector<std::vector<LayerRange>> bad = {
      {{0, 5}},          {{0, 5}, {6, 10}}, {{0, 6}, {5, 10}}, {{1, 10}},
      {{0, 5}, {5, 11}}, {{0, 0}, {0, 10}}, {{5, 10}, {0, 5}}, {{0, 5}, {5, 3}, {3, 10}}};
  for (const auto& ranges : bad) {
    EXPECT_THAT(Place(TenLayers(), nodes, {.ranges = ranges}),
                FailsWith(FailureKind::kInvalidRequest));
  }
}

TEST(Placement, InputsThatMakeNoSenseAreRefused) {
  ModelCost endless = TenLayers();
  endless.sessions = 2000000000;
  endless.context_tokens = 2000000000;
  EXPECT_THAT(Place(endless, {Node("a", 4000)}, {}), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Place(ModelCost{}, {Node("a", 4000)}, {}), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Place(TenLayers(), {}, {}), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Place(TenLayers(), {Node("a", 4000), Node("a", 4000)}, {}),
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Place(TenLayers(), {Node("a", 4000, 0)}, {}),
              FailsWith(FailureKind::kInvalidRequest));
}

// The best slowest stage over every order of exactly `k` nodes and every cut, by trying them all.
double BestByForce(const ModelCost& model, std::vector<NodeCost> nodes, size_t k) {
  double best = std::numeric_limits<double>::infinity();
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeCost& a, const NodeCost& b) { return a.node < b.node; });
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto walk = [&](auto&& self, size_t i, size_t layer, double slowest) -> void {
    if (i == k) {
      if (layer == model.layer_bytes.size()) best = std::min(best, slowest);
      return;
    }
    uint64_t weights = 0;
    for (size_t end = layer + 1; end <= model.layer_bytes.size(); ++end) {
      weights += model.layer_bytes[end - 1];
      const NodeCost& node = nodes[order[i]];
      const uint64_t held = weights + model.kv_bytes_per_layer() * (end - layer) +
                            model.scratch_bytes +
                            (i == 0 ? model.embedding_bytes + model.head_bytes : 0);
      if (held > node.memory_bytes) return;
      const double read = static_cast<double>(weights + (i == 0 ? model.head_read_bytes : 0));
      self(self, i + 1, end, std::max(slowest, read / node.read_bytes_per_s));
    }
  };
  do {
    walk(walk, 0, 0, 0);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

struct Draw {
  ModelCost model;
  std::vector<NodeCost> nodes;
};

Draw DrawCase(uint64_t seed, bool uniform) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](uint64_t n) { return random() % n; };
  Draw draw;
  draw.model = TenLayers();
  draw.model.layer_bytes.resize(1 + pick(8));
  if (!uniform) {
    for (uint64_t& bytes : draw.model.layer_bytes) bytes = (50 + pick(100)) * kMiB;
  }
  draw.model.embedding_bytes = pick(300) * kMiB;
  draw.model.head_read_bytes = pick(300) * kMiB;
  const size_t count = 1 + pick(4);
  for (size_t i = 0; i < count; ++i) {
    draw.nodes.push_back(
        Node("n" + std::to_string(i), 100 + pick(900), 1 + static_cast<double>(pick(20))));
  }
  return draw;
}

TEST(PlacementProperty, EveryAnswerTilesTheModelWithinCapacityOnDistinctNodes) {
  int placed = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Draw draw = DrawCase(seed, false);
    const auto placement = Place(draw.model, draw.nodes, {});
    if (!placement.ok()) continue;
    ++placed;
    int32_t next = 0;
    for (const PlacedShard& shard : placement->shards) {
      ASSERT_EQ(shard.layers.begin, next);
      ASSERT_GT(shard.layers.end, next);
      next = shard.layers.end;
      const auto node = std::find_if(draw.nodes.begin(), draw.nodes.end(),
                                     [&](const NodeCost& n) { return n.node == shard.node; });
      ASSERT_LE(shard.total_bytes, node->memory_bytes);
      ASSERT_EQ(shard.is_head, shard.layers.begin == 0);
      ASSERT_EQ(std::count_if(placement->shards.begin(), placement->shards.end(),
                              [&](const PlacedShard& s) { return s.node == shard.node; }),
                1);
    }
    ASSERT_EQ(next, draw.model.layer_count());
  }
  EXPECT_GT(placed, 500);
}

TEST(PlacementProperty, AutoUsesTheFewestNodesThatFitAndRefusesOnlyWhatFitsNowhere) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const Draw draw = DrawCase(seed, true);
    size_t fewest = 0;
    for (size_t k = 1; k <= std::min(draw.nodes.size(), draw.model.layer_bytes.size()); ++k) {
      if (std::isfinite(BestByForce(draw.model, draw.nodes, k))) {
        fewest = k;
        break;
      }
    }
    const auto placement = Place(draw.model, draw.nodes, {});
    ASSERT_EQ(placement.ok(), fewest > 0) << placement.status();
    if (fewest > 0) {
      ASSERT_EQ(placement->shards.size(), fewest);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(PlacementProperty, ForEqualLayersTheSlowestStageIsTheBestOfAllOrdersAndCuts) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Draw draw = DrawCase(seed, true);
    for (size_t k = 1; k <= std::min(draw.nodes.size(), draw.model.layer_bytes.size()); ++k) {
      const double best = BestByForce(draw.model, draw.nodes, k);
      const auto placement = Place(draw.model, draw.nodes, {.shards = static_cast<int32_t>(k)});
      ASSERT_EQ(placement.ok(), std::isfinite(best));
      if (!placement.ok()) continue;
      ASSERT_EQ(placement->slowest_stage, absl::Seconds(best));
    }
  }
}

TEST(PlacementProperty, MoreMemoryNeverMakesAFittingModelUnfit) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw = DrawCase(seed, false);
    const auto before = Place(draw.model, draw.nodes, {});
    if (!before.ok()) continue;
    draw.nodes[seed % draw.nodes.size()].memory_bytes += 100 * kMiB;
    const auto after = Place(draw.model, draw.nodes, {});
    ASSERT_THAT(after, IsOk());
    ASSERT_LE(after->shards.size(), before->shards.size());
  }
}

TEST(PlacementProperty, TheOrderInWhichNodesAreListedDoesNotMatter) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw = DrawCase(seed, false);
    for (NodeCost& node : draw.nodes) node.read_bytes_per_s = 1e9;  // Ties go by id.
    const auto before = Place(draw.model, draw.nodes, {});
    std::shuffle(draw.nodes.begin(), draw.nodes.end(), std::mt19937_64(seed));
    const auto after = Place(draw.model, draw.nodes, {});
    ASSERT_EQ(before.ok(), after.ok());
    if (before.ok()) ASSERT_EQ(before->explanation, after->explanation);
  }
}

TEST(Placement, ALargeClusterIsPlacedWithTheFewestNodesToo) {
  ModelCost model = TenLayers();
  model.layer_bytes.assign(64, 100 * kMiB);
  std::vector<NodeCost> nodes;
  for (int i = 0; i < 40; ++i) {
    nodes.push_back(Node("n" + std::to_string(i), i < 30 ? 400 : 1500, i < 30 ? 40 : 5));
  }
  const auto placement = Place(model, nodes, {});
  ASSERT_THAT(placement, IsOk());
  // A large node holds 14 layers (the head too), so 64 take five; the small ones hold 3.
  EXPECT_EQ(placement->shards.size(), 5U) << placement->explanation;
}

}  // namespace
}  // namespace shardline
