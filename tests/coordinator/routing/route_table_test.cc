#include "coordinator/routing/route_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

const NodeId kA("node-a");
const NodeId kB("node-b");

Plan TwoShards(uint64_t epoch = 1, const std::string& model = "qwen3") {
  return Plan{.epoch = PlanEpoch(epoch),
              .model = model,
              .model_id = ModelId("sha256:1"),
              .layer_count = 20,
              .shards = {{.node = kA, .layers = {0, 10}, .is_head = true, .bytes = 100},
                         {.node = kB, .layers = {10, 20}, .bytes = 100}}};
}

ShardReport Loaded(uint64_t plan = 1, const std::string& numerics = "n1") {
  return ShardReport{.plan = PlanEpoch(plan),
                     .state = ShardState::kLoaded,
                     .bytes_done = 100,
                     .bytes_total = 100,
                     .numerics_id = NumericsId(numerics)};
}

class RouteTableTest : public ::testing::Test {
 protected:
  void Ready(const NodeId& node, uint64_t incarnation, int64_t ms,
             const std::optional<ShardReport>& holds = std::nullopt) {
    table_.OnNodeReady(node, Incarnation(incarnation), node.value() + ":1", holds, At(ms));
  }
  // Both nodes join, load and prove themselves; actions are dropped.
  void Serve() {
    ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
    Ready(kA, 1, 0);
    Ready(kB, 2, 0);
    table_.OnShardReport(kA, Incarnation(1), Loaded(), At(10));
    table_.OnShardReport(kB, Incarnation(2), Loaded(), At(10));
    const RouteActions actions = table_.TakeActions();
    ASSERT_THAT(actions.probe, SizeIs(1));
    table_.OnProbeDone(PlanEpoch(1), actions.probe[0].number, absl::OkStatus(), At(20));
    ASSERT_EQ(State(), ModelState::kReady);
    (void)table_.TakeActions();
  }
  ModelState State(int64_t ms = 0) const { return table_.List(At(ms)).front().state; }

  RouteTable table_{RouteTableOptions{.probes_max = 2}};
};

TEST_F(RouteTableTest, ALiveNodeIsToldToLoadAndALateOneWhenItJoins) {
  Ready(kA, 1, 0);
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(1)), IsOk());
  RouteActions actions = table_.TakeActions();
  ASSERT_THAT(actions.load, SizeIs(1));
  EXPECT_EQ(actions.load[0].node, kA);
  EXPECT_EQ(actions.load[0].shard_index, 0U);
  EXPECT_THAT(table_.Problems(At(1)),
              ElementsAre("qwen3: layers 0-9 on node-a: loading, 0 %",
                          "qwen3: layers 10-19 on node-b: the node has not joined"));
  Ready(kB, 2, 2);
  actions = table_.TakeActions();
  ASSERT_THAT(actions.load, SizeIs(1));
  EXPECT_EQ(actions.load[0].shard_index, 1U);
  EXPECT_EQ(actions.load[0].incarnation, Incarnation(2));
}

TEST_F(RouteTableTest, AModelIsReadyOnlyAfterATokenHasGoneRound) {
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
  Ready(kA, 1, 0);
  Ready(kB, 2, 0);
  table_.OnShardReport(kA, Incarnation(1), Loaded(), At(10));
  EXPECT_THAT(table_.TakeActions().probe, IsEmpty());
  table_.OnShardReport(kB, Incarnation(2), Loaded(), At(11));
  const RouteActions actions = table_.TakeActions();
  ASSERT_THAT(actions.probe, SizeIs(1));
  EXPECT_EQ(actions.probe[0].route.ToString(), "node-a:0-9,node-b:10-19");
  EXPECT_EQ(State(), ModelState::kProbing);
  EXPECT_THAT(table_.RouteFor("qwen3", {}, At(12)), FailsWith(FailureKind::kOverloaded));
  table_.OnProbeDone(PlanEpoch(1), actions.probe[0].number, absl::OkStatus(), At(13));
  const auto route = table_.RouteFor("", {}, At(13));
  ASSERT_THAT(route, IsOk());
  EXPECT_EQ(route->numerics_id, NumericsId("n1"));
  EXPECT_THAT(route->stages, ElementsAre(RouteStage{kA, Incarnation(1), "node-a:1", {0, 10}},
                                         RouteStage{kB, Incarnation(2), "node-b:1", {10, 20}}));
  EXPECT_THAT(table_.Problems(At(13)), IsEmpty());
}

TEST_F(RouteTableTest, ARouteCostsWhatItsStagesReportedForAsLongAsTheyAreTheSame) {
  Serve();
  ShardReport measured = Loaded();
  measured.cost = {.step = absl::Milliseconds(7), .row = absl::Milliseconds(2)};
  table_.OnShardReport(kB, Incarnation(2), measured, At(30));
  const Route route = *table_.RouteFor("qwen3", {}, At(30));
  const std::vector<StageCost> costs = table_.CostsOf(route);
  ASSERT_THAT(costs, SizeIs(2));
  EXPECT_EQ(costs[0].cost, ShardCost());
  EXPECT_EQ(costs[1].cost, measured.cost);
  EXPECT_EQ(costs[1].weight_bytes, 100U);
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kHeartbeatLost, "heartbeat lost", At(40));
  Ready(kB, 3, 50);
  EXPECT_THAT(table_.CostsOf(route), IsEmpty());
}

TEST_F(RouteTableTest, ALostNodeDegradesTheModelAndIsNamedWithItsLayersAndTime) {
  Serve();
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kHeartbeatLost, "heartbeat lost", At(1000));
  EXPECT_EQ(State(), ModelState::kDegraded);
  const auto route = table_.RouteFor("qwen3", {}, At(2200));
  EXPECT_THAT(route, StatusHas(absl::StatusCode::kUnavailable,
                               HasSubstr("layers 10-19 on node-b: heartbeat lost 1.2 s ago")));
  const FailureDetail detail = FailureDetailOf(route.status());
  EXPECT_EQ(detail.kind, FailureKind::kHeartbeatLost);
  EXPECT_EQ(detail.node, kB);
  EXPECT_EQ(detail.layers, (LayerRange{10, 20}));
  EXPECT_GT(detail.retry_after, absl::ZeroDuration());
}

TEST_F(RouteTableTest, ANodeThatReturnsReloadsItsShardAndTheModelIsReadyAgainAfterAProbe) {
  Serve();
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kWorkerDeath, "stream reset", At(1000));
  Ready(kB, 3, 2000);
  RouteActions actions = table_.TakeActions();
  ASSERT_THAT(actions.load, SizeIs(1));
  EXPECT_EQ(actions.load[0].incarnation, Incarnation(3));
  EXPECT_EQ(State(), ModelState::kDegraded);
  // The dead one's last words change nothing.
  table_.OnShardReport(kB, Incarnation(2), Loaded(), At(2001));
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kWorkerDeath, "stream reset", At(2002));
  EXPECT_EQ(State(), ModelState::kDegraded);
  table_.OnShardReport(kB, Incarnation(3), Loaded(), At(2003));
  actions = table_.TakeActions();
  ASSERT_THAT(actions.probe, SizeIs(1));
  EXPECT_EQ(actions.probe[0].route.stages[1].incarnation, Incarnation(3));
  table_.OnProbeDone(PlanEpoch(1), actions.probe[0].number, absl::OkStatus(), At(2004));
  EXPECT_EQ(State(), ModelState::kReady);
}

TEST_F(RouteTableTest, AReconnectThatKeepsTheShardDisturbsNothing) {
  Serve();
  Ready(kB, 2, 500, Loaded());
  EXPECT_EQ(State(), ModelState::kReady);
  const RouteActions actions = table_.TakeActions();
  EXPECT_THAT(actions.load, IsEmpty());
  EXPECT_THAT(actions.probe, IsEmpty());
}

TEST_F(RouteTableTest, AShardHeldUnderANewIncarnationIsTakenOverButProbedAgain) {
  Serve();
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kHeartbeatLost, "heartbeat lost", At(1000));
  Ready(kB, 3, 1100, Loaded());
  const RouteActions actions = table_.TakeActions();
  EXPECT_THAT(actions.load, IsEmpty());
  EXPECT_THAT(actions.probe, SizeIs(1));
  EXPECT_EQ(State(), ModelState::kProbing);
}

TEST_F(RouteTableTest, ANewLifeIsProbedAgainEvenIfTheOldOneWasNeverReportedLost) {
  Serve();
  Ready(kB, 3, 500, Loaded());
  EXPECT_EQ(State(), ModelState::kProbing);
  const RouteActions actions = table_.TakeActions();
  ASSERT_THAT(actions.probe, SizeIs(1));
  EXPECT_EQ(actions.probe[0].route.stages[1].incarnation, Incarnation(3));
}

TEST_F(RouteTableTest, AShardOfAnOlderPlanIsReplacedByTheOrderOrUnloadedWhereThereIsNone) {
  ASSERT_THAT(table_.OnPlan(TwoShards(5), At(0)), IsOk());
  Ready(kA, 1, 0, Loaded(/*plan=*/4));
  Ready(NodeId("node-x"), 2, 0, Loaded(/*plan=*/4));
  RouteActions actions = table_.TakeActions();
  ASSERT_THAT(actions.unload, SizeIs(1));
  EXPECT_EQ(actions.unload[0].node, NodeId("node-x"));
  EXPECT_EQ(actions.unload[0].plan, PlanEpoch(4));
  EXPECT_THAT(actions.load, SizeIs(1));
  // A node does not give up a later plan's shard for an earlier plan's order: it is told to.
  Ready(kB, 3, 0, Loaded(/*plan=*/6));
  actions = table_.TakeActions();
  EXPECT_THAT(actions.unload, SizeIs(1));
  EXPECT_THAT(actions.load, SizeIs(1));
}

TEST_F(RouteTableTest, TheResultOfAnOldProbeIsNotTakenForTheNewOne) {
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
  Ready(kA, 1, 0, Loaded());
  Ready(kB, 2, 0, Loaded());
  const uint64_t old_number = table_.TakeActions().probe.at(0).number;
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kWorkerDeath, "stream reset", At(1));
  table_.OnProbeDone(PlanEpoch(1), old_number, absl::OkStatus(), At(2));
  EXPECT_EQ(State(), ModelState::kDegraded);
  Ready(kB, 3, 3, Loaded());
  const uint64_t new_number = table_.TakeActions().probe.at(0).number;
  table_.OnProbeDone(PlanEpoch(1), old_number, absl::OkStatus(), At(4));
  EXPECT_EQ(State(), ModelState::kProbing);
  table_.OnProbeDone(PlanEpoch(1), new_number, absl::OkStatus(), At(5));
  EXPECT_EQ(State(), ModelState::kReady);
}

TEST_F(RouteTableTest, AFailingProbeIsTriedAgainAndThenFailsTheModel) {
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
  Ready(kA, 1, 0, Loaded());
  Ready(kB, 2, 0, Loaded());
  const absl::Status no = MakeFailure(FailureKind::kNonFinite, "NaN from node-b");
  table_.OnProbeDone(PlanEpoch(1), table_.TakeActions().probe.at(0).number, no, At(100));
  EXPECT_EQ(State(), ModelState::kProbing);
  EXPECT_EQ(table_.NextWake(), At(1100));
  table_.OnTick(At(1099));
  EXPECT_TRUE(table_.TakeActions().probe.empty());
  table_.OnTick(At(1100));
  table_.OnProbeDone(PlanEpoch(1), table_.TakeActions().probe.at(0).number, no, At(1200));
  EXPECT_EQ(State(), ModelState::kFailed);
  EXPECT_THAT(table_.Problems(At(1200)).at(0),
              AllOf(HasSubstr("2 of 2 probes"), HasSubstr("NaN from node-b")));
  EXPECT_EQ(table_.NextWake(), At(11'200));  // It may have been the network's fault.
  // A node that comes back is worth another try.
  table_.OnNodeLost(kB, Incarnation(2), FailureKind::kWorkerDeath, "stream reset", At(1300));
  Ready(kB, 3, 1400, Loaded());
  EXPECT_THAT(table_.TakeActions().probe, SizeIs(1));
}

TEST_F(RouteTableTest, AShardOfOtherNumericsIsRefusedNamingBoth) {
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
  Ready(kB, 2, 0, Loaded(1, "n2"));
  Ready(kA, 1, 0, Loaded(1, "n1"));
  EXPECT_EQ(State(), ModelState::kFailed);
  EXPECT_THAT(table_.TakeActions().probe, IsEmpty());
  const auto route = table_.RouteFor("qwen3", {}, At(1));
  EXPECT_THAT(route, FailsWith(FailureKind::kIncompatibleRecipe));
  EXPECT_THAT(std::string(route.status().message()),
              AllOf(HasSubstr("layers 10-19 on node-b"), HasSubstr("n1"), HasSubstr("n2")));
  // Beside a head of its own kind it is right.
  table_.OnNodeLost(kA, Incarnation(1), FailureKind::kWorkerDeath, "stream reset", At(2));
  Ready(kA, 3, 3, Loaded(1, "n2"));
  EXPECT_THAT(table_.TakeActions().probe, SizeIs(1));
}

TEST_F(RouteTableTest, AShardThatCannotLoadFailsTheModelWithItsReason) {
  ASSERT_THAT(table_.OnPlan(TwoShards(), At(0)), IsOk());
  Ready(kA, 1, 0, Loaded());
  Ready(kB, 2, 0);
  table_.OnShardReport(kB, Incarnation(2),
                       ShardReport{.plan = PlanEpoch(1),
                                   .state = ShardState::kFailed,
                                   .failure = absl::NotFoundError("missing tensor blk.12")},
                       At(5));
  EXPECT_EQ(State(), ModelState::kFailed);
  EXPECT_THAT(table_.Problems(At(5)),
              ElementsAre("qwen3: layers 10-19 on node-b: missing tensor blk.12"));
}

TEST_F(RouteTableTest, PlansThatCannotServeAreRefused) {
  Serve();
  EXPECT_THAT(table_.OnPlan(TwoShards(2), At(0)), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(
      table_.OnPlan(TwoShards(2, "other"), At(0)),
      StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("node-a holds layers 0-9 of qwen3")));
  Plan gap = TwoShards(2, "other");
  gap.shards[1].layers.begin = 11;
  Plan two_heads = TwoShards(2, "other");
  two_heads.shards[1].is_head = true;
  Plan twice = TwoShards(2, "other");
  twice.shards[1].node = kA;
  Plan short_of = TwoShards(2, "other");
  short_of.layer_count = 21;
  for (const Plan& plan : {gap, two_heads, twice, short_of}) {
    EXPECT_THAT(ValidatePlan(plan), FailsWith(FailureKind::kInvalidRequest));
  }
}

TEST_F(RouteTableTest, UnloadingFreesTheNodesForAnotherPlanWithALaterEpoch) {
  Serve();
  EXPECT_THAT(table_.OnUnload("other", At(1)),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("")));
  ASSERT_THAT(table_.OnUnload("qwen3", At(1)), IsOk());
  EXPECT_THAT(table_.TakeActions().unload, SizeIs(2));
  EXPECT_THAT(table_.RouteFor("", {}, At(2)),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("")));
  EXPECT_THAT(table_.OnPlan(TwoShards(1), At(3)), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(table_.OnPlan(TwoShards(2), At(3)), IsOk());
  EXPECT_THAT(table_.TakeActions().load, SizeIs(2));
}

TEST_F(RouteTableTest, WithSeveralModelsAnUnnamedRequestTakesTheOnlyReadyOne) {
  Serve();
  const Plan other{.epoch = PlanEpoch(2),
                   .model = "llama",
                   .model_id = ModelId("sha256:2"),
                   .layer_count = 4,
                   .shards = {{.node = NodeId("node-c"), .layers = {0, 4}, .is_head = true}}};
  ASSERT_THAT(table_.OnPlan(other, At(30)), IsOk());
  ASSERT_THAT(table_.RouteFor("", {}, At(31)), IsOk());
  Ready(NodeId("node-c"), 9, 32, Loaded(2));
  table_.OnProbeDone(PlanEpoch(2), table_.TakeActions().probe.at(0).number, absl::OkStatus(),
                     At(33));
  EXPECT_THAT(table_.RouteFor("", {}, At(34)),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("llama, qwen3")));
  EXPECT_EQ(table_.RouteFor("llama", {}, At(34))->ToString(), "node-c:0-3");
}

}  // namespace
}  // namespace shardline
