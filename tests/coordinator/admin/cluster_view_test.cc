#include "coordinator/admin/cluster_view.h"

#include <gtest/gtest.h>

namespace shardline {
namespace {

constexpr uint64_t kPlannedBytes = 1000;

ClusterView OneShard(const ShardView& shard) {
  ClusterView view;
  ClusterModel& model = view.models.emplace_back();
  model.facts.name = "tiny";
  model.placed = true;
  model.view.shards.push_back(shard);
  return view;
}

// What operators are told of a shard that reports these bytes.
v1::ShardSummary Summary(ShardState state, uint64_t done, uint64_t total) {
  const ShardView shard = {
      .shard = {.node = NodeId("a"), .layers = {0, 4}, .is_head = true, .bytes = kPlannedBytes},
      .state = state,
      .bytes_done = done,
      .bytes_total = total};
  return ToShardList(OneShard(shard), "").shards(0);
}

TEST(ClusterView, AShardsTotalIsThePlansWhateverItsNodeCounts) {
  for (const uint64_t total : {0, 10, 1000, 4000}) {
    EXPECT_EQ(Summary(ShardState::kLoading, 0, total).bytes(), kPlannedBytes);
    EXPECT_EQ(Summary(ShardState::kLoaded, 0, total).bytes(), kPlannedBytes);
  }
}

TEST(ClusterView, ANodesProgressIsToldInThePlansBytes) {
  EXPECT_EQ(Summary(ShardState::kWaiting, 0, 0).bytes_done(), 0u);
  EXPECT_EQ(Summary(ShardState::kLoading, 0, 0).bytes_done(), 0u);
  EXPECT_EQ(Summary(ShardState::kLoading, 1000, 4000).bytes_done(), kPlannedBytes / 4);
  EXPECT_EQ(Summary(ShardState::kLoading, 5, 10).bytes_done(), kPlannedBytes / 2);
  // A node's word may be any number.
  EXPECT_EQ(Summary(ShardState::kLoading, UINT64_MAX, 10).bytes_done(), kPlannedBytes);
  EXPECT_EQ(Summary(ShardState::kLoading, 7, 0).bytes_done(), 0u);
}

TEST(ClusterView, ALoadedShardIsWholeEvenIfItsNodeSaysNoBytes) {
  EXPECT_EQ(Summary(ShardState::kLoaded, 0, 0).bytes_done(), kPlannedBytes);
}

TEST(ClusterView, HealthIsAReadyModelAndNoProblem) {
  ClusterView view = OneShard({});
  EXPECT_FALSE(ToStatus(view).healthy());
  view.models[0].view.state = ModelState::kReady;
  EXPECT_TRUE(ToStatus(view).healthy());
  view.problems.push_back("node-b: lost");
  EXPECT_FALSE(ToStatus(view).healthy());
}

}  // namespace
}  // namespace shardline
