// Layers that nobody holds any more: when another plan is asked for, and what it changes.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/routing/routing_world.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReplanTest : public ::testing::Test {
 protected:
  void Serve(const Plan& plan) {
    ASSERT_THAT(world_.table.OnPlan(plan, world_.now), IsOk());
    for (const PlannedShard& shard : plan.shards) world_.Join(shard.node.value());
    world_.Settle();
    ASSERT_EQ(world_.State(), ModelState::kReady);
    world_.loaded.clear();
    world_.probed.clear();
  }

  RoutingWorld world_;
};

TEST_F(ReplanTest, ARangeWithoutALiveNodeIsPlacedAgainAfterASecond) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Settle();
  EXPECT_EQ(world_.table.NextWake(), At(1000));
  world_.Advance(absl::Milliseconds(999));
  EXPECT_THAT(world_.replans, IsEmpty());
  world_.Advance(absl::Milliseconds(1));
  ASSERT_THAT(world_.replans, SizeIs(1));
  EXPECT_EQ(world_.replans[0].plan, PlanEpoch(1));
  EXPECT_THAT(world_.replans[0].lost, ElementsAre(LayerRange{10, 20}));
  EXPECT_EQ(world_.replans[0].reason, "layers 10-19 have no live node");
  world_.Advance(absl::Minutes(1));  // Asked once.
  EXPECT_THAT(world_.replans, SizeIs(1));
  EXPECT_EQ(world_.table.NextWake(), Instant::InfiniteFuture());

  world_.Join("c");
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}, {"c"}}), world_.now), IsOk());
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kReady);
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19");
  // The survivor is told too: its shard belongs to the new plan now.
  ASSERT_THAT(world_.loaded, SizeIs(2));
  EXPECT_EQ(world_.loaded[0].node, NodeId("a"));
  EXPECT_EQ(world_.loaded[0].plan, PlanEpoch(2));
  EXPECT_THAT(world_.unloaded, IsEmpty());
}

TEST_F(ReplanTest, AReplicaKeepsTheQuestionFromBeingAsked) {
  Serve(PlanOf(1, {{"a"}, {"b", "c"}}));
  world_.Lose("b");
  world_.Advance(absl::Minutes(1));
  EXPECT_THAT(world_.replans, IsEmpty());
}

TEST_F(ReplanTest, ANodeThatComesBackFirstEndsTheQuestionAndTheLatePlanIsRefused) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.replans, SizeIs(1));
  world_.Join("b");
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kReady);
  EXPECT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}}), world_.now),
              FailsWith(FailureKind::kStaleEpoch));
  EXPECT_EQ(world_.Route(), "a:0-9,b:10-19");
}

TEST_F(ReplanTest, OnceAnotherPlanIsInForceTheLostNodeComesBackAsASpare) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Join("c");
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}, {"c"}}), world_.now), IsOk());
  world_.Settle();
  world_.loaded.clear();
  world_.table.OnNodeReady(NodeId("b"), Incarnation(77), "b:1", LoadedReport(PlanEpoch(1)),
                           world_.now);
  world_.Settle();
  EXPECT_THAT(world_.loaded, IsEmpty());
  ASSERT_THAT(world_.unloaded, SizeIs(1));
  EXPECT_EQ(world_.unloaded[0].plan, PlanEpoch(1));
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19");
}

TEST_F(ReplanTest, NodesThatTheNewPlanDoesNotNeedUnload) {
  Serve(PlanOf(1, {{"a"}, {"b"}, {"c"}}));
  world_.Lose("c");
  world_.Advance(absl::Seconds(1));
  Plan smaller = PlanOf(2, {{"a"}});
  smaller.shards[0].layers.end = smaller.layer_count = 30;
  ASSERT_THAT(world_.table.OnReplan(smaller, world_.now), IsOk());
  world_.Settle();
  ASSERT_THAT(world_.unloaded, SizeIs(1));
  EXPECT_EQ(world_.unloaded[0].node, NodeId("b"));
  EXPECT_EQ(world_.Route(), "a:0-29");
}

TEST_F(ReplanTest, ARefusalIsShownAndAskedAgainWhenANodeJoins) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Advance(absl::Seconds(1));
  world_.table.OnReplanRefused("qwen3", PlanEpoch(1), "a has 1 MiB free\nshort by 9 MiB",
                               world_.now);
  world_.Settle();
  EXPECT_THAT(world_.table.Problems(world_.now),
              ElementsAre("qwen3: layers 10-19 on b: heartbeat lost 1.0 s ago",
                          "qwen3: and they cannot be placed again: a has 1 MiB free; short by "
                          "9 MiB"));
  world_.Advance(absl::Seconds(2));
  EXPECT_THAT(world_.replans, SizeIs(1));
  world_.Join("c");
  world_.Advance(absl::Seconds(1));
  EXPECT_THAT(world_.replans, SizeIs(2));
  // And without anybody joining, now and then.
  world_.table.OnReplanRefused("qwen3", PlanEpoch(1), "no", world_.now);
  world_.Advance(absl::Seconds(10));
  EXPECT_THAT(world_.replans, SizeIs(3));
}

TEST_F(ReplanTest, WhenAllComeBackOneByOneTheFirstIsNotGivenEverything) {
  Serve(PlanOf(1, {{"a"}, {"b"}, {"c"}}));
  for (const char* node : {"a", "b", "c"}) world_.Lose(node);
  world_.Advance(absl::Seconds(1));
  world_.table.OnReplanRefused("qwen3", PlanEpoch(1), "no node is ready", world_.now);
  world_.Advance(absl::Seconds(4));
  world_.replans.clear();
  for (const char* node : {"a", "b", "c"}) {
    world_.Join(node);
    world_.Advance(absl::Milliseconds(300));
  }
  EXPECT_THAT(world_.replans, IsEmpty());
  EXPECT_EQ(world_.State(), ModelState::kReady);
}

TEST_F(ReplanTest, AnotherNodeLostOnTheWayStartsOver) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Join("c");
  world_.Advance(absl::Seconds(1));
  world_.Lose("c");  // While the plan with it was being stored.
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}, {"c"}}), world_.now), IsOk());
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kDegraded);
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.replans, SizeIs(2));
  EXPECT_EQ(world_.replans[1].plan, PlanEpoch(2));
  world_.Join("d");
  ASSERT_THAT(world_.table.OnReplan(PlanOf(3, {{"a"}, {"d"}}), world_.now), IsOk());
  world_.Settle();
  EXPECT_EQ(world_.Route(), "a:0-9,d:10-19");
}

TEST_F(ReplanTest, ANodeThatCannotLoadItsNewShardIsNotAskedAgainInThisLife) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Join("c");
  world_.mute = {NodeId("c")};
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}, {"c"}}), world_.now), IsOk());
  world_.Settle();
  world_.table.OnShardReport(NodeId("c"), world_.Life("c").incarnation,
                             ShardReport{.plan = PlanEpoch(2),
                                         .state = ShardState::kFailed,
                                         .failure = absl::NotFoundError("no such file")},
                             world_.now);
  EXPECT_EQ(world_.State(), ModelState::kFailed);
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.replans, SizeIs(2));
  EXPECT_THAT(world_.replans[1].avoid.nodes, ElementsAre(world_.Life("c")));
}

TEST_F(ReplanTest, AModelThatHasNeverBeenReadyWaitsForItsOperatorWhenAShardCannotLoad) {
  world_.mute = {NodeId("a")};
  ASSERT_THAT(world_.table.OnPlan(PlanOf(1, {{"a"}}), world_.now), IsOk());
  world_.Join("a");
  world_.Settle();
  world_.table.OnShardReport(NodeId("a"), world_.Life("a").incarnation,
                             ShardReport{.plan = PlanEpoch(1),
                                         .state = ShardState::kFailed,
                                         .failure = absl::NotFoundError("no such file")},
                             world_.now);
  world_.Advance(absl::Hours(1));
  EXPECT_THAT(world_.replans, IsEmpty());
}

TEST_F(ReplanTest, NodesOfARestoredPlanHaveMoreTimeToJoinThanALostOneHasToComeBack) {
  ASSERT_THAT(world_.table.OnPlan(PlanOf(1, {{"a"}, {"b"}}), world_.now), IsOk());
  world_.Join("a");
  world_.Advance(absl::Milliseconds(9999));
  EXPECT_THAT(world_.replans, IsEmpty());
  world_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(world_.replans, SizeIs(1));
}

TEST_F(ReplanTest, ALinkThatStaysDeadIsPlannedAroundOnceInHalfAMinute) {
  Serve(PlanOf(1, {{"a"}, {"b"}, {"c"}}));
  world_.probe_result = [](const Route& route) {
    return route.ToString() == "a:0-9,b:10-19,c:20-29"
               ? MakeFailure({.kind = FailureKind::kHeartbeatLost,
                              .node = NodeId("b"),
                              .reporter = NodeId("a")},
                             "cut")
               : absl::OkStatus();
  };
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  world_.Advance(absl::Milliseconds(1500));
  EXPECT_THAT(world_.replans, IsEmpty());
  world_.Advance(absl::Milliseconds(500));
  ASSERT_THAT(world_.replans, SizeIs(1));
  EXPECT_THAT(world_.replans[0].lost, IsEmpty());
  EXPECT_EQ(world_.replans[0].reason, "no ring without the link a -> b");
  EXPECT_THAT(world_.replans[0].avoid.links,
              ElementsAre(RouteSuspects::Link{NodeId("a"), NodeId("b")}));
  world_.table.OnReplanRefused("qwen3", PlanEpoch(1), "no other order", world_.now);
  EXPECT_EQ(world_.State(), ModelState::kReady);
  for (int i = 0; i < 29; ++i) world_.Advance(absl::Seconds(1));
  EXPECT_THAT(world_.replans, SizeIs(1));
  world_.Advance(absl::Seconds(1));
  ASSERT_THAT(world_.replans, SizeIs(2));
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"a"}, {"c"}, {"b"}}), world_.now), IsOk());
  world_.Settle();
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19,b:20-29");
}

TEST_F(ReplanTest, AProbeOfTheOldPlanProvesNothingOfTheNew) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.Lose("b");
  world_.Join("b");
  RouteActions actions = world_.table.TakeActions();
  world_.table.OnShardReport(NodeId("b"), world_.Life("b").incarnation, LoadedReport(PlanEpoch(1)),
                             world_.now);
  const RouteActions::Probe old = world_.table.TakeActions().probe.at(0);
  world_.Lose("a");
  world_.Join("c");
  world_.Advance(absl::Seconds(1));
  world_.mute = {NodeId("b"), NodeId("c")};
  ASSERT_THAT(world_.table.OnReplan(PlanOf(2, {{"b"}, {"c"}}), world_.now), IsOk());
  world_.Settle();
  world_.table.OnProbeDone(old.plan, old.number, absl::OkStatus(), world_.now);
  EXPECT_EQ(world_.State(), ModelState::kDegraded);
  // Nor do late words about the old plan's shard count for the new one.
  world_.table.OnShardReport(NodeId("b"), world_.Life("b").incarnation, LoadedReport(PlanEpoch(1)),
                             world_.now);
  world_.Settle();
  EXPECT_THAT(world_.table.Problems(world_.now).at(0), HasSubstr("layers 0-9 on b: loading"));
}

TEST_F(ReplanTest, ALinkOutageThatEndsChangesNoPlan) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  world_.Settle();  // The probe goes over it.
  world_.Advance(absl::Minutes(1));
  EXPECT_THAT(world_.replans, IsEmpty());
  EXPECT_THAT(world_.probed, SizeIs(1));
}

TEST_F(ReplanTest, PlansThatDoNotAnswerTheQuestionAreRefused) {
  Serve(PlanOf(5, {{"a"}, {"b"}}));
  EXPECT_THAT(world_.table.OnReplan(PlanOf(6, {{"a"}, {"c"}}), world_.now),
              FailsWith(FailureKind::kStaleEpoch));  // Not asked.
  world_.Lose("b");
  world_.Advance(absl::Seconds(1));
  EXPECT_THAT(world_.table.OnReplan(PlanOf(5, {{"a"}, {"c"}}), world_.now),
              FailsWith(FailureKind::kInvalidRequest));
  Plan other = PlanOf(6, {{"a"}, {"c"}});
  other.model_id = ModelId("sha256:2");
  EXPECT_THAT(world_.table.OnReplan(other, world_.now), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_EQ(world_.State(), ModelState::kDegraded);
}

}  // namespace
}  // namespace shardline::testing
