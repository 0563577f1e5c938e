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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const RequestId kRequest(1);
const AttemptKey kKey = KeyOf(100, 1);

// One attempt only: what an attempt does when it cannot be replaced.
class SessionsTest : public ::testing::Test {
 protected:
  SessionsActions Take() { return core_.TakeActions(); }
  // Up to the question to the store.
  void Ask(uint64_t request = 1) {
    core_.OnGenerate(ARequest(request), At(0));
    ASSERT_THAT(Take().find_route, SizeIs(1));
    core_.OnRoute(RequestId(request), RouteOver("abc"), At(0));
  }
  void Grant() {
    Ask();
    ASSERT_THAT(Take().grant, SizeIs(1));
    core_.OnGranted(kRequest, GrantOf(kKey), At(1));
  }
  void Open() {
    Grant();
    ASSERT_THAT(Take().open, SizeIs(3));
    for (size_t i = 0; i < 3; ++i) core_.OnOpenReply(kKey, i, OpenResult(), At(2));
  }
  void Run() {
    Open();
    ASSERT_THAT(Take().run, SizeIs(1));
  }
  // The record of the end under way becomes durable; the client's end.
  absl::Status FinishedAs(SessionOutcome outcome, int64_t ms) {
    const SessionsActions before = Take();
    EXPECT_THAT(before.finish, SizeIs(1));
    if (!before.finish.empty()) EXPECT_EQ(before.finish[0].record.outcome, outcome);
    EXPECT_THAT(before.end, IsEmpty());
    core_.OnFinished(kKey, outcome, At(ms));
    const SessionsActions after = Take();
    EXPECT_THAT(after.end, SizeIs(1));
    return after.end.empty() ? absl::UnknownError("no end") : after.end[0].status;
  }

  SessionsCore core_{
      SessionsOptions{.admission = {.sessions_max = 2, .waiting_max = 0}, .attempts_max = 1}};
};

TEST_F(SessionsTest, NothingIsOpenedBeforeTheGrantIsDurable) {
  Ask();
  SessionsActions actions = Take();
  ASSERT_THAT(actions.grant, SizeIs(1));
  EXPECT_EQ(actions.grant[0].route, "node-a:0-9,node-b:10-19,node-c:20-29");
  EXPECT_FALSE(actions.grant[0].session.has_value());
  EXPECT_THAT(actions.open, IsEmpty());
  core_.OnGranted(kRequest, GrantOf(kKey), At(1));
  actions = Take();
  ASSERT_THAT(actions.open, SizeIs(3));  // Every stage at once.
  EXPECT_EQ(actions.open[2].to.node, NodeId("node-c"));
  EXPECT_EQ(actions.open[2].tokens_max, 9U);
  EXPECT_EQ(actions.open[2].budget, absl::Milliseconds(9999));
}

TEST_F(SessionsTest, TheHeadRunsOnlyWhenEveryStageIsOpen) {
  Grant();
  (void)Take();
  core_.OnOpenReply(kKey, 2, OpenResult(), At(2));
  core_.OnOpenReply(kKey, 0, OpenResult(), At(2));
  core_.OnOpenReply(kKey, 0, OpenResult(), At(2));  // A copy opens no other stage.
  EXPECT_TRUE(Take().empty());
  core_.OnOpenReply(kKey, 1, OpenResult(), At(3));
  const SessionsActions actions = Take();
  ASSERT_THAT(actions.run, SizeIs(1));
  EXPECT_EQ(actions.run[0].head.node, NodeId("node-a"));
  EXPECT_THAT(actions.run[0].delivered, IsEmpty());
  EXPECT_THAT(actions.started, SizeIs(1));
}

TEST_F(SessionsTest, TheHeadBeginsWhereTheShortestStageEnds) {
  SessionRequest request = ARequest();
  request.prompt_tokens = 100;
  request.affinity = 9;
  core_.OnGenerate(request, At(0));
  EXPECT_EQ(Take().find_route.at(0).affinity, 9U);
  core_.OnRoute(kRequest, RouteOver("abc"), At(0));
  core_.OnGranted(kRequest, GrantOf(kKey), At(1));
  (void)Take();
  const uint32_t cached[] = {96, 64, 80};
  for (size_t i = 0; i < 3; ++i) {
    core_.OnOpenReply(kKey, i, OpenResult{.cached_tokens = cached[i]}, At(2));
  }
  EXPECT_EQ(Take().run.at(0).cached_tokens, 64U);
  core_.OnRunEnd(kKey, RunResult{.reason = FinishReason::kStop}, At(20));
  core_.OnFinished(kKey, SessionOutcome::kCompleted, At(25));
  EXPECT_EQ(Take().end.at(0).result.cached_tokens, 64U);
}

TEST_F(SessionsTest, AStageThatSaysTooMuchIsBelievedAsFarAsThereIsAPrompt) {
  Grant();  // 5 tokens of prompt.
  for (size_t i = 0; i < 3; ++i) {
    core_.OnOpenReply(kKey, i, OpenResult{.cached_tokens = ~uint32_t{0}}, At(2));
  }
  EXPECT_EQ(Take().run.at(0).cached_tokens, 0U);
}

TEST_F(SessionsTest, ACompletedAnswerEndsAfterItsRecordIsDurable) {
  Run();
  for (uint32_t i = 0; i < 3; ++i) core_.OnToken(kKey, i, 40 + static_cast<int32_t>(i), At(10 + i));
  EXPECT_THAT(Take().deliver, SizeIs(3));
  core_.OnRunEnd(kKey, RunResult{.reason = FinishReason::kStop, .tokens = 3, .stop_token = 2},
                 At(20));
  SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(3));
  EXPECT_EQ(actions.fence[0].kind, FailureKind::kNone);
  EXPECT_THAT(actions.cancel_run, IsEmpty());
  ASSERT_THAT(actions.finish, SizeIs(1));
  EXPECT_EQ(actions.finish[0].record.outcome, SessionOutcome::kCompleted);
  EXPECT_EQ(actions.finish[0].record.tokens, 3U);
  EXPECT_THAT(actions.end, IsEmpty());
  core_.OnFinished(kKey, SessionOutcome::kCompleted, At(25));
  actions = Take();
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_THAT(actions.end[0].status, IsOk());
  EXPECT_EQ(actions.end[0].result.reason, FinishReason::kStop);
  EXPECT_EQ(actions.end[0].ttft, absl::Milliseconds(10));
  EXPECT_EQ(actions.end[0].total, absl::Milliseconds(25));
  for (size_t i = 0; i < 3; ++i) {
    core_.OnFenceReply(kKey, i, FenceResult{.pages_released = 2, .buffers_released = 1}, At(30));
    core_.OnFenceReply(kKey, i, FenceResult{.pages_released = 2}, At(30));  // A copy counts once.
  }
  EXPECT_EQ(core_.stats().pages_released, 6U);
  EXPECT_TRUE(core_.idle());
}

TEST_F(SessionsTest, ATokenThatIsLateDoubledOrOfAnotherEpochIsDropped) {
  Run();
  core_.OnToken(kKey, 0, 7, At(3));
  core_.OnToken(kKey, 0, 7, At(4));
  core_.OnToken({SessionId(100), Epoch(2)}, 1, 9, At(4));
  core_.OnToken({SessionId(101), Epoch(1)}, 1, 9, At(4));
  const SessionsActions actions = Take();
  ASSERT_THAT(actions.deliver, SizeIs(1));
  EXPECT_EQ(actions.deliver[0].token, 7);
  EXPECT_EQ(core_.stats().tokens_dropped, 3U);
}

TEST_F(SessionsTest, AGapInTheTokensFailsTheAttempt) {
  Run();
  core_.OnToken(kKey, 0, 7, At(3));
  core_.OnToken(kKey, 2, 8, At(4));
  EXPECT_THAT(FinishedAs(SessionOutcome::kFailed, 5), FailsWith(FailureKind::kStepConflict));
}

TEST_F(SessionsTest, MoreTokensThanAskedForFailTheAttempt) {
  Run();
  for (uint32_t i = 0; i < 5; ++i) core_.OnToken(kKey, i, 7, At(3));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.deliver, SizeIs(4));
  ASSERT_THAT(actions.finish, SizeIs(1));
  EXPECT_EQ(actions.finish[0].record.kind, FailureKind::kStepConflict);
}

TEST_F(SessionsTest, AnEndThatCountsOtherTokensThanArrivedIsNotASuccess) {
  Run();
  core_.OnToken(kKey, 0, 7, At(3));
  core_.OnRunEnd(kKey, RunResult{.reason = FinishReason::kLength, .tokens = 2}, At(4));
  EXPECT_THAT(FinishedAs(SessionOutcome::kFailed, 5),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("after 2 tokens, but 1")));
}

TEST_F(SessionsTest, ARefusedOpenFencesEveryStageAndTellsWhenToComeBack) {
  Grant();
  (void)Take();
  core_.OnOpenReply(kKey, 0, OpenResult(), At(2));
  core_.OnOpenReply(kKey, 1, MakeFailure(FailureKind::kKvExhausted, "pool has 0 of 64 pages free"),
                    At(3));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.run, IsEmpty());
  EXPECT_THAT(actions.fence, SizeIs(3));  // Also the one whose answer is still out.
  EXPECT_EQ(actions.fence[0].kind, FailureKind::kKvExhausted);
  core_.OnOpenReply(kKey, 2, OpenResult(), At(4));
  EXPECT_TRUE(Take().empty());
  core_.OnRoute(kRequest, RouteOver("abc"), At(4));  // No other, and nobody may wait.
  const absl::Status status = FinishedAs(SessionOutcome::kFailed, 5);
  const FailureDetail detail = FailureDetailOf(status);
  EXPECT_EQ(detail.kind, FailureKind::kKvExhausted);
  EXPECT_EQ(detail.node, NodeId("node-b"));
  EXPECT_EQ(detail.layers, (LayerRange{10, 20}));
  EXPECT_EQ(detail.session, SessionId(100));
  EXPECT_EQ(detail.retry_after, absl::Seconds(1));
}

TEST_F(SessionsTest, AStageThatNeverAnswersItsOpenIsNamed) {
  Grant();
  (void)Take();
  core_.OnOpenReply(kKey, 0, OpenResult(), At(2));
  EXPECT_EQ(core_.NextWake(), At(2001));
  core_.OnTick(At(2000));
  EXPECT_TRUE(Take().empty());
  core_.OnTick(At(2001));
  const absl::Status status = FinishedAs(SessionOutcome::kFailed, 2002);
  EXPECT_THAT(status, FailsWith(FailureKind::kHeartbeatLost));
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("node-b"));
}

TEST_F(SessionsTest, ALostNodeEndsTheSessionsOfItsRoutesNamingItsLayers) {
  Run();
  core_.OnToken(kKey, 0, 7, At(3));
  (void)Take();
  core_.OnNodeLost(NodeId("node-b"), Incarnation(1), FailureKind::kWorkerDeath, "stream reset",
                   At(4));  // An older life: not on this route.
  core_.OnNodeLost(NodeId("node-d"), Incarnation(9), FailureKind::kWorkerDeath, "stream reset",
                   At(4));
  EXPECT_TRUE(Take().empty());
  core_.OnNodeLost(NodeId("node-b"), Incarnation(2), FailureKind::kHeartbeatLost, "heartbeat lost",
                   At(5));
  SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(3));
  EXPECT_THAT(actions.cancel_run, SizeIs(1));
  ASSERT_THAT(actions.finish, SizeIs(1));
  EXPECT_EQ(actions.finish[0].record.tokens, 1U);
  core_.OnToken(kKey, 1, 8, At(6));
  core_.OnFinished(kKey, SessionOutcome::kFailed, At(7));
  actions = Take();
  EXPECT_THAT(actions.deliver, IsEmpty());
  EXPECT_THAT(actions.end.at(0).status,
              StatusHas(absl::StatusCode::kUnavailable,
                        HasSubstr("node-b (layers 10-19): heartbeat lost")));
  const FailureDetail detail = FailureDetailOf(actions.end.at(0).status);
  EXPECT_EQ(detail.node, NodeId("node-b"));
  EXPECT_EQ(detail.layers, (LayerRange{10, 20}));
}

TEST_F(SessionsTest, TheClientsEndDoesNotWaitForFencesThatNobodyAnswers) {
  Run();
  core_.OnNodeLost(NodeId("node-b"), Incarnation(2), FailureKind::kWorkerDeath, "stream reset",
                   At(5));
  EXPECT_THAT(FinishedAs(SessionOutcome::kUnverified, 6), FailsWith(FailureKind::kWorkerDeath));
  EXPECT_FALSE(core_.idle());
  for (size_t i = 0; i < 3; ++i) {
    core_.OnFenceReply(kKey, i, absl::UnavailableError("gone"), At(9));
  }
  EXPECT_EQ(core_.stats().fences_failed, 3U);
  EXPECT_TRUE(core_.idle());
}

TEST_F(SessionsTest, AHeadsBrokenLinkIsBlamedOnTheNodeThatMembershipFindsLost) {
  Run();
  core_.OnRunFailed(kKey, MakeFailure(FailureKind::kStreamReset, "link to node-b reset"), At(100));
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(core_.NextWake(), At(400));
  core_.OnNodeLost(NodeId("node-c"), Incarnation(3), FailureKind::kWorkerDeath, "stream reset",
                   At(250));
  const absl::Status status = FinishedAs(SessionOutcome::kUnverified, 260);
  EXPECT_THAT(status, FailsWith(FailureKind::kWorkerDeath));
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("node-c"));
  EXPECT_EQ(FailureDetailOf(status).layers, (LayerRange{20, 30}));
}

TEST_F(SessionsTest, WithoutALostNodeTheHeadsWordIsReportedAfterTheGrace) {
  Run();
  core_.OnRunFailed(
      kKey,
      MakeFailure(FailureDetail{.kind = FailureKind::kStreamReset, .node = NodeId("node-b")},
                  "link reset"),
      At(100));
  core_.OnTick(At(399));
  EXPECT_TRUE(Take().empty());
  core_.OnTick(At(400));
  const absl::Status status = FinishedAs(SessionOutcome::kUnverified, 401);
  EXPECT_THAT(status, FailsWith(FailureKind::kStreamReset));
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("node-b"));
  EXPECT_EQ(FailureDetailOf(status).layers, (LayerRange{10, 20}));
}

TEST_F(SessionsTest, AHeadThatCannotBeReachedIsItselfTheSuspect) {
  Run();
  core_.OnRunFailed(kKey, absl::UnavailableError("connection refused"), At(100));
  core_.OnTick(At(400));
  const absl::Status status = FinishedAs(SessionOutcome::kUnverified, 401);
  EXPECT_THAT(status, FailsWith(FailureKind::kStreamReset));
  EXPECT_EQ(FailureDetailOf(status).node, NodeId("node-a"));
}

TEST_F(SessionsTest, AFailureThatIsNoConnectionLossIsReportedAtOnce) {
  Run();
  core_.OnRunFailed(
      kKey,
      MakeFailure(FailureDetail{.kind = FailureKind::kNonFinite, .node = NodeId("node-c")},
                  "NaN in layer 21"),
      At(100));
  const absl::Status status = FinishedAs(SessionOutcome::kFailed, 101);
  EXPECT_THAT(status, FailsWith(FailureKind::kNonFinite));
  EXPECT_EQ(FailureDetailOf(status).layers, (LayerRange{20, 30}));
}

TEST_F(SessionsTest, ASilentHeadExpiresAtTheDeadline) {
  Run();
  core_.OnToken(kKey, 0, 7, At(3));
  (void)Take();
  EXPECT_EQ(core_.NextWake(), At(10000));
  core_.OnTick(At(9999));
  EXPECT_TRUE(Take().empty());
  core_.OnTick(At(10000));
  EXPECT_THAT(FinishedAs(SessionOutcome::kExpired, 10001),
              StatusHas(absl::StatusCode::kDeadlineExceeded, HasSubstr("after 1 tokens")));
}

TEST_F(SessionsTest, AFailureIsToldWithinTheGraceEvenIfTheStoreIsSilent) {
  Run();
  core_.OnTick(At(10000));
  (void)Take();
  EXPECT_EQ(core_.NextWake(), At(10500));
  core_.OnTick(At(10500));
  SessionsActions actions = Take();
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_THAT(actions.end[0].status, FailsWith(FailureKind::kDeadlineExceeded));
  // The record is still waited for, and brings no second end.
  core_.OnFinished(kKey, SessionOutcome::kExpired, At(11000));
  actions = Take();
  EXPECT_THAT(actions.end, IsEmpty());
  EXPECT_THAT(actions.forget, SizeIs(1));
}

TEST_F(SessionsTest, ASuccessWithoutADurableRecordIsNeverToldAsOne) {
  Run();
  core_.OnRunEnd(kKey, RunResult{.tokens = 0}, At(20));
  (void)Take();
  core_.OnFinished(kKey, MakeFailure(FailureKind::kOverloaded, "disk full"), At(30));
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(core_.NextWake(), At(130));
  core_.OnTick(At(130));
  EXPECT_THAT(Take().finish, SizeIs(1));  // Tried again.
  core_.OnTick(At(10499));
  EXPECT_THAT(Take().end, IsEmpty());
  core_.OnTick(At(10500));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kUncertain));
}

TEST_F(SessionsTest, ARecordThatAnotherCoordinatorWroteStands) {
  Run();
  core_.OnRunEnd(kKey, RunResult{.tokens = 0}, At(20));
  (void)Take();
  core_.OnFinished(kKey, SessionOutcome::kFenced, At(30));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kStaleEpoch));
  EXPECT_EQ(core_.stats().completed, 0U);
}

TEST_F(SessionsTest, ACancelFencesAtOnceAndAnyNumberOfThemEndsOnce) {
  Run();
  core_.OnCancel(kRequest, At(50));
  SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(3));
  EXPECT_EQ(actions.fence[0].kind, FailureKind::kCancelled);
  EXPECT_THAT(actions.cancel_run, SizeIs(1));
  EXPECT_THAT(actions.finish, SizeIs(1));
  core_.OnCancel(kRequest, At(51));
  core_.OnRunFailed(kKey, absl::CancelledError("call cancelled"), At(52));
  EXPECT_TRUE(Take().empty());
  core_.OnFinished(kKey, SessionOutcome::kCancelled, At(53));
  EXPECT_THAT(Take().end, SizeIs(1));
  core_.OnCancel(kRequest, At(54));
  EXPECT_TRUE(Take().empty());
}

TEST_F(SessionsTest, ACancelDuringTheGrantOpensNothingAndClosesTheAttempt) {
  Ask();
  core_.OnCancel(kRequest, At(1));
  EXPECT_THAT(Take().end, IsEmpty());
  core_.OnGranted(kRequest, GrantOf(kKey), At(2));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.open, IsEmpty());
  EXPECT_THAT(actions.fence, IsEmpty());
  ASSERT_THAT(actions.finish, SizeIs(1));
  EXPECT_EQ(actions.finish[0].record.outcome, SessionOutcome::kCancelled);
  core_.OnFinished(kKey, SessionOutcome::kCancelled, At(3));
  EXPECT_THAT(Take().end, SizeIs(1));
  EXPECT_TRUE(core_.idle());
}

TEST_F(SessionsTest, ARefusedGrantEndsTheRequestWithoutARecord) {
  Ask();
  (void)Take();
  core_.OnGranted(kRequest, MakeFailure(FailureKind::kOverloaded, "disk full"), At(1));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.finish, IsEmpty());
  EXPECT_THAT(actions.end.at(0).status, FailsWith(FailureKind::kOverloaded));
  EXPECT_TRUE(core_.idle());
}

TEST_F(SessionsTest, BeyondTheLimitARequestIsRefusedWithAdvice) {
  core_.OnGenerate(ARequest(1), At(0));
  core_.OnGenerate(ARequest(2), At(0));
  core_.OnGenerate(ARequest(3), At(0));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.find_route, SizeIs(2));
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_EQ(actions.end[0].request, RequestId(3));
  EXPECT_THAT(actions.end[0].status,
              StatusHas(absl::StatusCode::kResourceExhausted, HasSubstr("all 2 sessions")));
  EXPECT_EQ(FailureDetailOf(actions.end[0].status).retry_after, absl::Seconds(1));
}

TEST_F(SessionsTest, ShutdownEndsWhatRunsAndRefusesWhatComes) {
  Run();
  core_.OnShutdown(At(50));
  EXPECT_THAT(FinishedAs(SessionOutcome::kCancelled, 51), FailsWith(FailureKind::kCancelled));
  core_.OnGenerate(ARequest(2), At(52));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kOverloaded));
}

TEST_F(SessionsTest, ShutdownDoesNotChangeAnEndThatIsUnderWay) {
  Run();
  core_.OnRunEnd(kKey, RunResult{.tokens = 0}, At(20));
  core_.OnShutdown(At(21));
  EXPECT_THAT(FinishedAs(SessionOutcome::kCompleted, 22), IsOk());
}

TEST_F(SessionsTest, ARequestWithoutTokensOrTimeIsRefused) {
  SessionRequest no_prompt = ARequest(1);
  no_prompt.prompt_tokens = 0;
  SessionRequest no_time = ARequest(2);
  no_time.budget = absl::ZeroDuration();
  core_.OnGenerate(no_prompt, At(0));
  core_.OnGenerate(no_time, At(0));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.find_route, IsEmpty());
  EXPECT_THAT(actions.end.at(0).status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(actions.end.at(1).status, FailsWith(FailureKind::kDeadlineExceeded));
}

}  // namespace
}  // namespace shardline
