// Several nodes for one range: who serves, who takes over, who is avoided.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/routing/routing_world.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReplicaTest : public ::testing::Test {
 protected:
  void Serve(const Plan& plan) {
    ASSERT_THAT(world_.table.OnPlan(plan, world_.now), IsOk());
    for (const PlannedShard& shard : plan.shards) world_.Join(shard.node.value());
    world_.Settle();
    ASSERT_EQ(world_.State(), ModelState::kReady);
  }
  RouteSuspects Suspects(const std::string& node) { return {.nodes = {world_.Life(node)}}; }
  static RouteSuspects SuspectLink(const std::string& from, const std::string& to) {
    return {.nodes = {}, .links = {{NodeId(from), NodeId(to)}}};
  }

  RoutingWorld world_;
};

TEST_F(ReplicaTest, EveryShardIsProvenByAProbeOfItsOwn) {
  ASSERT_THAT(world_.table.OnPlan(PlanOf(1, {{"a", "b"}, {"c", "d"}}, 2), world_.now), IsOk());
  for (const char* node : {"a", "b", "c", "d"}) world_.Join(node);
  world_.Settle();
  std::vector<std::string> routes;
  for (const RouteActions::Probe& probe : world_.probed) routes.push_back(probe.route.ToString());
  EXPECT_THAT(routes, ElementsAre("a:0-9,c:10-19", "b:0-9,c:10-19", "a:0-9,d:10-19"));
  EXPECT_THAT(world_.table.Problems(world_.now), IsEmpty());
}

TEST_F(ReplicaTest, RoutesTakeTurnsAmongReplicas) {
  Serve(PlanOf(1, {{"a", "b"}, {"c"}}, 1));
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19");
  EXPECT_EQ(world_.Route(), "b:0-9,c:10-19");
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19");
}

TEST_F(ReplicaTest, PromptsThatBeginAlikeGoWhereTheyWereUntilItIsTooUneven) {
  Serve(PlanOf(1, {{"a", "b"}, {"c", "d"}}, 2));
  const auto route = [&](uint64_t affinity) {
    return world_.table.RouteFor("qwen3", {}, world_.now, affinity)->ToString();
  };
  EXPECT_EQ(route(7), "a:0-9,c:10-19");
  EXPECT_EQ(route(7), "a:0-9,c:10-19");
  EXPECT_EQ(route(8), "b:0-9,d:10-19") << "others take turns";
  EXPECT_EQ(route(7), "a:0-9,c:10-19");
  EXPECT_EQ(route(8), "b:0-9,d:10-19");
  int in_a_row = 0;
  while (route(7) == "a:0-9,c:10-19") ASSERT_LT(++in_a_row, 20);
  EXPECT_EQ(in_a_row, 7) << "with the one ahead before";
  EXPECT_EQ(route(7), "b:0-9,d:10-19") << "it stays where it is now";
  world_.Lose("b");
  world_.Settle();
  EXPECT_EQ(route(7), "a:0-9,d:10-19");
}

TEST_F(ReplicaTest, AReplicaTakesOverAtOnceAndTheProblemIsGivenInNumbers) {
  Serve(PlanOf(1, {{"a", "b"}, {"c"}}, 2));
  world_.Lose("a");
  world_.now = world_.now + absl::Milliseconds(1200);
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kReady);
  EXPECT_EQ(world_.Route(), "b:0-9,c:10-19");
  EXPECT_EQ(world_.Route(), "b:0-9,c:10-19");
  EXPECT_THAT(world_.table.Problems(world_.now),
              ElementsAre("qwen3: layers 0-9 have 1 of 2 replicas: a: heartbeat lost 1.2 s ago",
                          "qwen3: layers 10-19 have 1 of 2 replicas: no other node had room"));
}

TEST_F(ReplicaTest, AReplicaThatComesBackServesOnlyOnceProven) {
  Serve(PlanOf(1, {{"a", "b"}, {"c"}}));
  world_.Lose("a");
  world_.Settle();
  world_.probed.clear();
  world_.probe_result = [](const Route& route) {
    const bool through_a = route.stages[0].node == NodeId("a");
    return through_a ? MakeFailure(FailureKind::kNonFinite, "NaN") : absl::OkStatus();
  };
  world_.Join("a");
  world_.Settle();
  EXPECT_THAT(world_.probed, SizeIs(1));
  EXPECT_EQ(world_.State(), ModelState::kReady);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(world_.Route(), "b:0-9,c:10-19");
  // It is not blamed on b or c, and tried again.
  world_.probe_result = nullptr;
  world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.Route(), "a:0-9,c:10-19");
}

TEST_F(ReplicaTest, AUselessReplicaDoesNotFailTheModel) {
  world_.probe_result = [](const Route& route) {
    const bool through_a = route.stages[0].node == NodeId("a");
    return through_a ? MakeFailure(FailureKind::kNonFinite, "NaN") : absl::OkStatus();
  };
  ASSERT_THAT(world_.table.OnPlan(PlanOf(1, {{"a", "b"}, {"c"}}), world_.now), IsOk());
  for (const char* node : {"a", "b", "c"}) world_.Join(node);
  world_.Settle();
  for (int i = 0; i < 10; ++i) world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.State(), ModelState::kReady);
  EXPECT_EQ(world_.Route(), "b:0-9,c:10-19");
}

TEST_F(ReplicaTest, ASuspectedLifeIsNeverOnARouteButItsNextLifeIs) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  const RouteSuspects suspects = Suspects("b");
  const auto refused = world_.table.RouteFor("qwen3", suspects, world_.now);
  EXPECT_THAT(refused, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("layers 10-19"), HasSubstr("no other node than b")));
  EXPECT_EQ(FailureDetailOf(refused.status()).node, NodeId("b"));
  EXPECT_GT(FailureDetailOf(refused.status()).retry_after, absl::ZeroDuration());
  EXPECT_EQ(world_.Route(), "a:0-9,b:10-19");  // Of other sessions it is no suspect.
  world_.Lose("b");
  world_.Join("b");
  world_.Settle();
  EXPECT_EQ(world_.Route(suspects), "a:0-9,b:10-19");
}

TEST_F(ReplicaTest, ASuspectedLinkIsAvoidedOverAnotherReplicaAlsoOnTheWayBack) {
  Serve(PlanOf(1, {{"a", "b"}, {"c", "d"}}, 2));
  const absl::Status cut = MakeFailure(FailureKind::kStreamReset, "cut");
  world_.probe_result = [&cut](const Route&) { return cut; };
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("c"), world_.now);
  world_.table.OnLinkSuspected(NodeId("c"), NodeId("b"), world_.now);
  world_.table.OnLinkSuspected(NodeId("d"), NodeId("a"), world_.now);
  world_.Settle();
  // Of the four rings only b, d has none of the three.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(world_.Route(), "b:0-9,d:10-19");
}

TEST_F(ReplicaTest, WithoutAnotherRingALinkIsRefusedToWhoSuspectsItUntilAProbeWentOverIt) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.probe_result = [](const Route&) { return MakeFailure(FailureKind::kStreamReset, "cut"); };
  EXPECT_THAT(world_.Route(SuspectLink("a", "b")), HasSubstr("no ring without the links a -> b"));
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kReady);
  EXPECT_EQ(world_.Route(), "a:0-9,b:10-19");  // There is no better one for others.
  EXPECT_THAT(world_.Route(SuspectLink("a", "b")), HasSubstr("no ring"));
  world_.probe_result = nullptr;
  world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.Route(SuspectLink("a", "b")), "a:0-9,b:10-19");
  // The same old suspicion does not count anew; a new one does.
  EXPECT_EQ(world_.Route(SuspectLink("a", "b")), "a:0-9,b:10-19");
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  EXPECT_THAT(world_.Route(SuspectLink("a", "b")), HasSubstr("no ring"));
}

TEST_F(ReplicaTest, ALinkIsTriedAgainAfterTenSecondsWithoutProof) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.probe_result = [](const Route&) { return MakeFailure(FailureKind::kStreamReset, "cut"); };
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  for (int i = 0; i < 9; ++i) world_.Advance(absl::Seconds(1));
  EXPECT_THAT(world_.Route(SuspectLink("a", "b")), HasSubstr("no ring"));
  world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.Route(SuspectLink("a", "b")), "a:0-9,b:10-19");
  EXPECT_EQ(world_.table.NextWake(), Instant::InfiniteFuture());
}

TEST_F(ReplicaTest, AProbeThatBeganBeforeTheSuspicionProvesNothing) {
  Serve(PlanOf(1, {{"a"}, {"b"}}));
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  const RouteActions::Probe probe = world_.table.TakeActions().probe.at(0);
  world_.now = world_.now + absl::Milliseconds(10);
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  world_.table.OnProbeDone(probe.plan, probe.number, absl::OkStatus(), world_.now);
  EXPECT_THAT(world_.Route(SuspectLink("a", "b")), HasSubstr("no ring"));
}

TEST_F(ReplicaTest, ANewLifeOfOneEndIsNotUnderTheOldSuspicion) {
  Serve(PlanOf(1, {{"a", "d"}, {"b"}}));
  world_.probe_result = [](const Route&) { return MakeFailure(FailureKind::kStreamReset, "cut"); };
  world_.table.OnLinkSuspected(NodeId("a"), NodeId("b"), world_.now);
  world_.Settle();
  world_.probe_result = nullptr;
  world_.Lose("b");
  world_.Join("b");
  world_.Settle();  // Proven by a ring through d, if a link of a's were a suspect still.
  world_.Lose("d");
  EXPECT_EQ(world_.Route(SuspectLink("a", "b")), "a:0-9,b:10-19");
}

TEST_F(ReplicaTest, InNeedARouteHasAsFewSuspectsAsCanBe) {
  Serve(PlanOf(1, {{"a", "b"}, {"c"}}));
  const auto anyway = [this](RouteSuspects avoid) {
    return world_.table.RouteAnyway("qwen3", avoid, world_.now)->ToString();
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(anyway(Suspects("a")), "b:0-9,c:10-19");
  RouteSuspects both = Suspects("a");
  both.nodes.push_back(world_.Life("c"));
  EXPECT_EQ(anyway(both), "b:0-9,c:10-19");
  // A suspected node weighs more than a suspected link.
  world_.probe_result = [](const Route&) { return MakeFailure(FailureKind::kStreamReset, "cut"); };
  both.nodes = {world_.Life("a")};
  both.links = {{NodeId("b"), NodeId("c")}};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(anyway(both), "b:0-9,c:10-19");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(anyway(SuspectLink("b", "c")), "a:0-9,c:10-19");
  // Who is lost is no choice at all.
  world_.Lose("c");
  EXPECT_THAT(world_.table.RouteAnyway("qwen3", {}, world_.now),
              FailsWith(FailureKind::kHeartbeatLost));
}

TEST_F(ReplicaTest, AProbeThatFindsNoRoomBlamesNobody) {
  world_.probe_result = [](const Route&) { return MakeFailure(FailureKind::kKvExhausted, "full"); };
  ASSERT_THAT(world_.table.OnPlan(PlanOf(1, {{"a"}}), world_.now), IsOk());
  world_.Join("a");
  for (int i = 0; i < 20; ++i) world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.State(), ModelState::kProbing);
  EXPECT_THAT(world_.table.Problems(world_.now),
              ElementsAre("qwen3: all layers are loaded, but a probe failed: full"));
  world_.probe_result = nullptr;
  world_.Advance(absl::Seconds(1));
  EXPECT_EQ(world_.State(), ModelState::kReady);
}

TEST_F(ReplicaTest, AProbeThatFailsOnALinkMakesTheLinkASuspect) {
  Serve(PlanOf(1, {{"a", "b"}, {"c"}}));
  world_.Lose("b");
  world_.probe_result = [](const Route& route) {
    const bool over_b = route.stages[0].node == NodeId("b");
    return over_b ? MakeFailure({.kind = FailureKind::kStreamReset,
                                 .node = NodeId("b"),
                                 .reporter = NodeId("c")},
                                "cut")
                  : absl::OkStatus();
  };
  world_.Join("b");
  world_.Settle();
  const absl::StatusOr<Route> other =
      world_.table.RouteFor("qwen3", SuspectLink("c", "b"), world_.now);
  EXPECT_EQ(other->ToString(), "a:0-9,c:10-19");
}

TEST_F(ReplicaTest, AReplicaOfOtherNumericsIsRefusedAndTheModelStaysReady) {
  Serve(PlanOf(1, {{"a"}, {"b", "c"}}));
  world_.Lose("c");
  world_.mute = {NodeId("c")};
  world_.Join("c");
  world_.Settle();
  world_.table.OnShardReport(NodeId("c"), world_.Life("c").incarnation,
                             LoadedReport(PlanEpoch(1), "n2"), world_.now);
  world_.Settle();
  EXPECT_EQ(world_.State(), ModelState::kReady);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(world_.Route(), "a:0-9,b:10-19");
}

}  // namespace
}  // namespace shardline::testing
