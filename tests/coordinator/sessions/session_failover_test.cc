// A failed attempt is followed by another one: when, on which route, and with what.

#include "coordinator/sessions/sessions_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/sessions/session_steps.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::ARequest;
using ::shardline::testing::At;
using ::shardline::testing::FailsWith;
using ::shardline::testing::GrantOf;
using ::shardline::testing::IsOk;
using ::shardline::testing::KeyOf;
using ::shardline::testing::RouteOver;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const RequestId kRequest(1);

class FailoverTest : public ::testing::Test {
 protected:
  SessionsActions Take() { return core_.TakeActions(); }

  // The answer to a question for a route, and the grant that follows it.
  SessionsActions::Grant Find(const std::string& nodes, int64_t ms) {
    core_.OnRoute(kRequest, RouteOver(nodes), At(ms));
    const SessionsActions actions = Take();
    EXPECT_THAT(actions.grant, SizeIs(1));
    return actions.grant.empty() ? SessionsActions::Grant() : actions.grant[0];
  }
  // Attempt `epoch` runs on `nodes`, from a question for a route on.
  SessionsActions Run(uint64_t epoch, const std::string& nodes, int64_t ms) {
    (void)Find(nodes, ms);
    core_.OnGranted(kRequest, GrantOf(KeyOf(100, epoch)), At(ms));
    for (size_t i = 0; i < nodes.size(); ++i) {
      core_.OnOpenReply(KeyOf(100, epoch), i, OpenResult(), At(ms));
    }
    SessionsActions actions = Take();
    EXPECT_THAT(actions.run, SizeIs(1));
    return actions;
  }
  void RunFirst() {
    core_.OnGenerate(ARequest(), At(0));
    ASSERT_THAT(Take().find_route, SizeIs(1));
    (void)Run(1, "abc", 1);
  }
  void Token(uint64_t epoch, uint32_t index, int64_t ms) {
    core_.OnToken(KeyOf(100, epoch), index, 70 + static_cast<int32_t>(index), At(ms));
  }
  void Lose(char node, uint64_t life, int64_t ms) {
    core_.OnNodeLost(NodeId(std::string("node-") + node), Incarnation(life),
                     FailureKind::kWorkerDeath, "stream reset", At(ms));
  }
  // The head of attempt `epoch` says that this node failed it.
  void Fail(uint64_t epoch, FailureKind kind, const std::string& node, int64_t ms) {
    core_.OnRunFailed(KeyOf(100, epoch),
                      MakeFailure(FailureDetail{.kind = kind, .node = NodeId(node)}, "broken"),
                      At(ms));
  }
  absl::Status EndOf(uint64_t epoch, SessionOutcome outcome, int64_t ms) {
    const SessionsActions before = Take();
    EXPECT_THAT(before.finish, SizeIs(1));
    if (!before.finish.empty()) {
      EXPECT_EQ(before.finish[0].key, KeyOf(100, epoch));
      EXPECT_EQ(before.finish[0].record.outcome, outcome);
    }
    core_.OnFinished(KeyOf(100, epoch), outcome, At(ms));
    const SessionsActions after = Take();
    EXPECT_THAT(after.end, SizeIs(1));
    EXPECT_THAT(after.forget, SizeIs(1));
    return after.end.empty() ? absl::UnknownError("no end") : after.end[0].status;
  }

  SessionsCore core_{SessionsOptions{}};
};

TEST_F(FailoverTest, ALostNodeIsReplacedAndTheStreamGoesOnBehindWhatWasDelivered) {
  RunFirst();
  Token(1, 0, 10);
  Token(1, 1, 11);
  (void)Take();
  Lose('b', 2, 20);
  SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(3));  // Every old stage at once, the lost one too.
  EXPECT_THAT(actions.cancel_run, SizeIs(1));
  EXPECT_THAT(actions.finish, IsEmpty());
  ASSERT_THAT(actions.find_route, SizeIs(1));
  EXPECT_THAT(actions.find_route[0].avoid.nodes,
              ElementsAre(StagePeer{NodeId("node-b"), Incarnation(2)}));

  const SessionsActions::Grant grant = Find("adc", 21);
  EXPECT_EQ(grant.session, SessionId(100));
  ASSERT_TRUE(grant.previous.has_value());
  EXPECT_EQ(grant.previous->outcome, SessionOutcome::kUnverified);  // A step was under way.
  EXPECT_EQ(grant.previous->tokens, 2U);
  EXPECT_EQ(grant.previous->work_tokens, 7U);
  EXPECT_EQ(grant.previous->kind, FailureKind::kWorkerDeath);
  EXPECT_EQ(grant.budget, absl::Milliseconds(9979));

  core_.OnGranted(kRequest, GrantOf(KeyOf(100, 2)), At(22));
  EXPECT_THAT(Take().open, SizeIs(3));
  Token(1, 2, 23);  // Of the old attempt: too late.
  for (size_t i = 0; i < 3; ++i) core_.OnOpenReply(KeyOf(100, 2), i, OpenResult(), At(23));
  actions = Take();
  EXPECT_THAT(actions.deliver, IsEmpty());
  EXPECT_THAT(actions.started, IsEmpty());
  ASSERT_THAT(actions.restarted, SizeIs(1));
  EXPECT_EQ(actions.restarted[0].from, KeyOf(100, 1));
  EXPECT_THAT(actions.restarted[0].reason, FailsWith(FailureKind::kWorkerDeath));
  ASSERT_THAT(actions.run, SizeIs(1));
  EXPECT_THAT(actions.run[0].delivered, ElementsAre(70, 71));

  Token(2, 2, 30);
  ASSERT_THAT(Take().deliver, SizeIs(1));
  core_.OnRunEnd(KeyOf(100, 2), RunResult{.reason = FinishReason::kStop, .tokens = 3}, At(40));
  EXPECT_THAT(EndOf(2, SessionOutcome::kCompleted, 41), IsOk());
  EXPECT_EQ(core_.stats().restarts, 1U);
}

TEST_F(FailoverTest, TheDeadlineIsTheRequestsOwn) {
  RunFirst();
  Lose('b', 2, 6000);
  (void)Take();
  (void)Run(2, "adc", 6001);
  EXPECT_EQ(core_.NextWake(), At(10000));
  core_.OnTick(At(10000));
  EXPECT_THAT(EndOf(2, SessionOutcome::kExpired, 10001), FailsWith(FailureKind::kDeadlineExceeded));
}

TEST_F(FailoverTest, WithoutARouteItWaitsUntilRoutesChange) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  core_.OnRoute(kRequest, MakeFailure(FailureKind::kHeartbeatLost, "layers 10-19 lost"), At(21));
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(core_.List(At(21)).at(0).phase, "waiting for a route");
  EXPECT_EQ(core_.NextWake(), At(271));
  core_.OnRoutesChanged(At(100));
  EXPECT_THAT(Take().find_route, SizeIs(1));
  (void)Run(2, "aBc", 101);  // The next life of node-b is under no suspicion.
}

TEST_F(FailoverTest, WaitingForARouteEndsAtTheDeadlineWithTheOldAttemptsRecord) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  core_.OnRoute(kRequest, MakeFailure(FailureKind::kHeartbeatLost, "layers 10-19 lost"), At(21));
  core_.OnTick(At(10000));
  EXPECT_THAT(EndOf(1, SessionOutcome::kExpired, 10001),
              StatusHas(absl::StatusCode::kDeadlineExceeded, HasSubstr("before that: node-b")));
}

TEST_F(FailoverTest, ARouteThatNeedsASuspectIsTakenOnlyAfterAPause) {
  RunFirst();
  core_.OnRunFailed(KeyOf(100, 1),
                    MakeFailure(FailureDetail{.kind = FailureKind::kHeartbeatLost,
                                              .node = NodeId("node-c"),
                                              .reporter = NodeId("node-b")},
                                "silent"),
                    At(20));
  SessionsActions actions = Take();
  ASSERT_THAT(actions.find_route, SizeIs(1));
  EXPECT_THAT(actions.find_route[0].avoid.nodes, IsEmpty());  // The link, not a node.
  EXPECT_THAT(actions.find_route[0].avoid.links,
              ElementsAre(RouteSuspects::Link{NodeId("node-b"), NodeId("node-c")}));
  core_.OnRoute(kRequest, RouteOver("abc"), At(21));
  EXPECT_THAT(Take().grant, IsEmpty());
  core_.OnTick(At(519));
  EXPECT_THAT(Take().find_route, IsEmpty());
  core_.OnTick(At(520));
  EXPECT_THAT(Take().find_route, SizeIs(1));
  (void)Find("abc", 520);  // Still no other: better than none.
}

TEST_F(FailoverTest, WhereOnlySuspectsAreLeftTheyAreAskedForAfterAPause) {
  const absl::Status none = MakeFailure(FailureKind::kOverloaded, "the suspects leave no ring");
  RunFirst();
  Fail(1, FailureKind::kUncertain, "node-b", 20);
  (void)Take();
  core_.OnRoute(kRequest, none, At(20));
  core_.OnTick(At(270));
  EXPECT_THAT(Take().find_route.at(0).avoid.nodes, SizeIs(1));
  core_.OnRoute(kRequest, none, At(270));
  core_.OnTick(At(520));
  EXPECT_THAT(Take().find_route.at(0).avoid.nodes, SizeIs(1));  // Still rather without it.
  core_.OnRoute(kRequest, none, At(520));
  EXPECT_THAT(Take().find_route.at(0).avoid.nodes, IsEmpty());
  (void)Find("abc", 520);
}

TEST_F(FailoverTest, ALinkThatFailedAnAttemptIsReportedEachTime) {
  RunFirst();
  for (uint64_t epoch = 1; epoch < 3; ++epoch) {
    core_.OnRunFailed(KeyOf(100, epoch),
                      MakeFailure(FailureDetail{.kind = FailureKind::kUncertain,
                                                .node = NodeId("node-b"),
                                                .reporter = NodeId("node-a")},
                                  "no answer"),
                      At(1000));
    EXPECT_THAT(Take().suspect_links,
                ElementsAre(RouteSuspects::Link{NodeId("node-a"), NodeId("node-b")}));
    if (epoch == 1) (void)Run(2, "acb", 1000);
  }
}

TEST_F(FailoverTest, AfterThreeAttemptsItFails) {
  RunFirst();
  for (uint64_t epoch = 1; epoch < 3; ++epoch) {
    Fail(epoch, FailureKind::kUncertain, "node-b", 20);
    ASSERT_THAT(Take().find_route, SizeIs(1));
    (void)Run(epoch + 1, "adc", 20);
  }
  Fail(3, FailureKind::kUncertain, "node-d", 30);
  EXPECT_THAT(EndOf(3, SessionOutcome::kUnverified, 31), FailsWith(FailureKind::kUncertain));
  EXPECT_EQ(core_.stats().failed, 1U);
}

TEST_F(FailoverTest, AfterTwoNodeDeathsItIsPoison) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  (void)Run(2, "adc", 21);
  Lose('d', 4, 30);
  EXPECT_THAT(EndOf(2, SessionOutcome::kFailed, 31), FailsWith(FailureKind::kPoison));
  EXPECT_EQ(core_.stats().poisoned, 1U);
}

TEST_F(FailoverTest, ADeathThatIsNoticedAfterTheRestartCountsToo) {
  RunFirst();
  Fail(1, FailureKind::kHeartbeatLost, "node-b", 20);
  (void)Take();
  (void)Run(2, "adc", 21);
  Lose('b', 2, 25);  // What the head had said.
  EXPECT_TRUE(Take().empty());
  Lose('d', 4, 30);
  EXPECT_THAT(EndOf(2, SessionOutcome::kFailed, 31), FailsWith(FailureKind::kPoison));
}

TEST_F(FailoverTest, TwoNodesThatDieTogetherAreOneDeathOfTheSession) {
  RunFirst();
  Lose('b', 2, 20);
  Lose('c', 3, 20);
  (void)Take();
  (void)Run(2, "ade", 21);
  Lose('d', 4, 30);
  EXPECT_THAT(EndOf(2, SessionOutcome::kFailed, 31), FailsWith(FailureKind::kPoison));
}

TEST_F(FailoverTest, ANodeLostDuringTheGrantIsNotOpened) {
  core_.OnGenerate(ARequest(), At(0));
  (void)Take();
  (void)Find("abc", 1);
  Lose('c', 3, 2);
  EXPECT_TRUE(Take().empty());
  core_.OnGranted(kRequest, GrantOf(KeyOf(100, 1)), At(3));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.open, IsEmpty());
  EXPECT_THAT(actions.fence, IsEmpty());
  EXPECT_THAT(actions.find_route, SizeIs(1));
  EXPECT_EQ(Find("abd", 4).previous->outcome, SessionOutcome::kFenced);  // No step was under way.
}

TEST_F(FailoverTest, NaNIsTriedOnceMoreWithoutTheNodeThatMadeIt) {
  RunFirst();
  Fail(1, FailureKind::kNonFinite, "node-b", 20);
  (void)Take();
  (void)Run(2, "adc", 21);
  Fail(2, FailureKind::kNonFinite, "node-d", 30);
  EXPECT_THAT(EndOf(2, SessionOutcome::kFailed, 31), FailsWith(FailureKind::kNonFinite));
}

TEST_F(FailoverTest, NaNEndsTheRequestWhereNoOtherRouteExists) {
  RunFirst();
  Fail(1, FailureKind::kNonFinite, "node-b", 20);
  (void)Take();
  core_.OnRoute(kRequest, RouteOver("abc"), At(21));
  EXPECT_THAT(EndOf(1, SessionOutcome::kFailed, 22), FailsWith(FailureKind::kNonFinite));
}

TEST_F(FailoverTest, NaNDoesNotWaitForARoute) {
  RunFirst();
  Fail(1, FailureKind::kNonFinite, "node-b", 20);
  (void)Take();
  core_.OnRoute(kRequest, MakeFailure(FailureKind::kOverloaded, "no ring without it"), At(21));
  EXPECT_THAT(EndOf(1, SessionOutcome::kFailed, 22), FailsWith(FailureKind::kNonFinite));
}

TEST_F(FailoverTest, AFullNodeIsLeftForAnotherOneAtOnce) {
  core_.OnGenerate(ARequest(), At(0));
  (void)Take();
  (void)Find("abc", 1);
  core_.OnGranted(kRequest, GrantOf(KeyOf(100, 1)), At(1));
  core_.OnOpenReply(KeyOf(100, 1), 1, MakeFailure(FailureKind::kKvExhausted, "0 pages free"),
                    At(2));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(3));
  ASSERT_THAT(actions.find_route, SizeIs(1));
  EXPECT_THAT(actions.find_route[0].avoid.nodes,
              ElementsAre(StagePeer{NodeId("node-b"), Incarnation(2)}));
  EXPECT_EQ(Find("adc", 3).previous->outcome, SessionOutcome::kFenced);
}

TEST_F(FailoverTest, ATokenThatComesAgainMustBeTheOneDelivered) {
  RunFirst();
  Token(1, 0, 10);
  Lose('b', 2, 20);
  (void)Take();
  (void)Run(2, "adc", 21);
  Token(2, 0, 22);
  EXPECT_TRUE(Take().empty());  // The same: suppressed.
  core_.OnToken(KeyOf(100, 2), 0, 99, At(23));
  EXPECT_THAT(EndOf(2, SessionOutcome::kFailed, 24), FailsWith(FailureKind::kDiverged));
}

TEST_F(FailoverTest, AFailureThatARestartCannotMendEndsTheSession) {
  const FailureKind kinds[] = {FailureKind::kStepConflict, FailureKind::kMalformedBundle,
                               FailureKind::kUnauthorised, FailureKind::kInvalidRequest};
  for (const FailureKind kind : kinds) {
    SCOPED_TRACE(FailureKindName(kind));
    SessionsCore core{SessionsOptions{}};
    core.OnGenerate(ARequest(), At(0));
    core.OnRoute(kRequest, RouteOver("a"), At(0));
    core.OnGranted(kRequest, GrantOf(KeyOf(100, 1)), At(0));
    core.OnOpenReply(KeyOf(100, 1), 0, OpenResult(), At(1));
    (void)core.TakeActions();
    core.OnRunFailed(KeyOf(100, 1), MakeFailure(kind, "no"), At(2));
    const SessionsActions actions = core.TakeActions();
    EXPECT_THAT(actions.find_route, IsEmpty());
    EXPECT_EQ(actions.finish.at(0).record.outcome, SessionOutcome::kFailed);
  }
}

TEST_F(FailoverTest, AProbeHasOneAttemptOnItsOwnRoute) {
  SessionRequest probe = ARequest();
  probe.route = RouteOver("abc");
  core_.OnGenerate(probe, At(0));
  SessionsActions actions = Take();
  EXPECT_THAT(actions.find_route, IsEmpty());
  ASSERT_THAT(actions.grant, SizeIs(1));
  core_.OnGranted(kRequest, GrantOf(KeyOf(100, 1)), At(1));
  Lose('b', 2, 2);
  EXPECT_THAT(EndOf(1, SessionOutcome::kFailed, 3), FailsWith(FailureKind::kWorkerDeath));
}

TEST_F(FailoverTest, ACancelDuringTheNewGrantWritesTheNewAttemptsRecord) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  (void)Find("adc", 21);
  core_.OnCancel(kRequest, At(22));
  EXPECT_TRUE(Take().empty());  // The old stages are fenced, the new ones have heard nothing.
  core_.OnGranted(kRequest, GrantOf(KeyOf(100, 2)), At(23));
  EXPECT_THAT(EndOf(2, SessionOutcome::kCancelled, 24), FailsWith(FailureKind::kCancelled));
}

TEST_F(FailoverTest, ACancelDuringAGrantThatFailsWritesTheOldAttemptsRecord) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  (void)Find("adc", 21);
  core_.OnCancel(kRequest, At(22));
  core_.OnGranted(kRequest, MakeFailure(FailureKind::kOverloaded, "disk full"), At(23));
  EXPECT_THAT(EndOf(1, SessionOutcome::kCancelled, 24), FailsWith(FailureKind::kCancelled));
}

TEST_F(FailoverTest, AFullLedgerDelaysARestartAndALaterTermEndsIt) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  (void)Find("adc", 21);
  core_.OnGranted(kRequest, MakeFailure(FailureKind::kOverloaded, "disk full"), At(22));
  EXPECT_TRUE(Take().empty());
  core_.OnTick(At(272));
  ASSERT_THAT(Take().find_route, SizeIs(1));
  (void)Find("adc", 273);
  core_.OnGranted(kRequest, MakeFailure(FailureKind::kStaleEpoch, "a later term"), At(274));
  EXPECT_THAT(EndOf(1, SessionOutcome::kUnverified, 275), FailsWith(FailureKind::kStaleEpoch));
}

TEST_F(FailoverTest, ARouteOfOtherNumericsIsNoContinuation) {
  RunFirst();
  Lose('b', 2, 20);
  (void)Take();
  Route other = RouteOver("adc");
  other.numerics_id = NumericsId("cuda");
  core_.OnRoute(kRequest, other, At(21));
  EXPECT_THAT(EndOf(1, SessionOutcome::kUnverified, 22),
              FailsWith(FailureKind::kIncompatibleRecipe));
}

TEST_F(FailoverTest, AMassFailureIsPacedByTheClustersBudget) {
  SessionsCore core{SessionsOptions{.restarts = {.burst = 2, .per_second = 1, .per_session = 0}}};
  for (uint64_t r = 1; r <= 4; ++r) {
    core.OnGenerate(ARequest(r), At(0));
    core.OnRoute(RequestId(r), RouteOver("abc"), At(0));
    core.OnGranted(RequestId(r), GrantOf(KeyOf(100 + r, 1)), At(0));
  }
  (void)core.TakeActions();
  core.OnNodeLost(NodeId("node-b"), Incarnation(2), FailureKind::kWorkerDeath, "gone", At(10));
  EXPECT_THAT(core.TakeActions().find_route, SizeIs(2));
  EXPECT_EQ(core.stats().restarts_paced, 2U);
  core.OnRoutesChanged(At(20));  // Its turn has not come yet.
  for (const auto& asked : core.TakeActions().find_route) EXPECT_LE(asked.request, RequestId(2));
  core.OnTick(core.NextWake());
  EXPECT_THAT(core.TakeActions().find_route, SizeIs(1));
  core.OnTick(At(2500));
  EXPECT_THAT(core.TakeActions().find_route, SizeIs(1));
}

TEST_F(FailoverTest, AFenceForANodeOutOfReachIsSentAgainWhenThatLifeIsBack) {
  RunFirst();
  core_.OnCancel(kRequest, At(10));
  (void)Take();
  for (size_t i = 0; i < 3; ++i) {
    core_.OnFenceReply(KeyOf(100, 1), i, absl::UnavailableError("no route"), At(11));
  }
  core_.OnNodeReady(NodeId("node-b"), Incarnation(102), At(20));  // Another life holds nothing.
  EXPECT_THAT(Take().fence, IsEmpty());
  core_.OnNodeReady(NodeId("node-b"), Incarnation(2), At(20));
  const SessionsActions actions = Take();
  ASSERT_THAT(actions.fence, SizeIs(1));
  EXPECT_EQ(actions.fence[0].stage, 1U);
  core_.OnFenceReply(KeyOf(100, 1), 1, FenceResult{.pages_released = 3}, At(21));
  core_.OnNodeReady(NodeId("node-b"), Incarnation(2), At(22));
  core_.OnNodeReady(NodeId("node-c"), Incarnation(3), At(12001));  // Freed by its own deadline.
  EXPECT_THAT(Take().fence, IsEmpty());
  EXPECT_EQ(core_.stats().fences_resent, 1U);
}

TEST_F(FailoverTest, ABeatsReplyListsWhatTheNodeShouldHold) {
  RunFirst();
  EXPECT_THAT(core_.LiveOn(NodeId("node-b"), Incarnation(2)).attempts, ElementsAre(KeyOf(100, 1)));
  EXPECT_THAT(core_.LiveOn(NodeId("node-b"), Incarnation(1)).attempts, IsEmpty());
  EXPECT_EQ(core_.LiveOn(NodeId("node-d"), Incarnation(4)).as_of, 3U);
  Lose('c', 3, 20);
  (void)Take();
  EXPECT_THAT(core_.LiveOn(NodeId("node-b"), Incarnation(2)).attempts, IsEmpty());
  (void)Run(2, "abd", 21);
  EXPECT_THAT(core_.LiveOn(NodeId("node-b"), Incarnation(2)).attempts, ElementsAre(KeyOf(100, 2)));
  EXPECT_EQ(core_.LiveOn(NodeId("node-b"), Incarnation(2)).as_of, 6U);
}

}  // namespace
}  // namespace shardline
