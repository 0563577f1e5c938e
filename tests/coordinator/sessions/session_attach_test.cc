// A request that was made before: joined while it runs, answered from the ledger when it is over.

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

SessionRequest Keyed(uint64_t request, const std::string& key = "k", uint64_t digest = 7) {
  SessionRequest r = ARequest(request);
  r.identity = {.tenant = {}, .key = key, .digest = digest, .session = std::nullopt};
  return r;
}

SessionRequest Back(uint64_t request, std::vector<int32_t> held) {
  SessionRequest r = ARequest(request);
  r.identity = {.tenant = {}, .key = {}, .digest = 7, .session = SessionId(100)};
  r.tokens_held = std::move(held);
  return r;
}

class AttachTest : public ::testing::Test {
 protected:
  SessionsActions Take() { return core_.TakeActions(); }
  // Request 1 runs and has delivered 70 and 71.
  void Run() {
    core_.OnGenerate(Keyed(1), At(0));
    core_.OnRoute(RequestId(1), RouteOver("ab"), At(0));
    core_.OnGranted(RequestId(1), GrantOf(KeyOf(100, 1)), At(1));
    for (size_t i = 0; i < 2; ++i) core_.OnOpenReply(KeyOf(100, 1), i, OpenResult(), At(2));
    core_.OnToken(KeyOf(100, 1), 0, 70, At(3));
    core_.OnToken(KeyOf(100, 1), 1, 71, At(4));
    (void)Take();
  }
  // Asks as `request` and lets the store answer `admitted`.
  SessionsActions Admit(const SessionRequest& request, const Admitted& admitted) {
    core_.OnGenerate(request, At(0));
    core_.OnRoute(request.request, RouteOver("ab"), At(0));
    EXPECT_THAT(Take().grant, SizeIs(1));
    core_.OnGranted(request.request, admitted, At(1));
    return Take();
  }

  SessionsCore core_{SessionsOptions{}};
};

TEST_F(AttachTest, ANewerConnectionTakesTheStreamOverAndGetsWhatItLacks) {
  Run();
  core_.OnGenerate(Back(2, {70}), At(10));
  SessionsActions actions = Take();
  ASSERT_THAT(actions.rebind, SizeIs(1));
  EXPECT_EQ(actions.rebind[0].from, RequestId(1));
  EXPECT_EQ(actions.rebind[0].to, RequestId(2));
  EXPECT_THAT(actions.grant, IsEmpty());
  ASSERT_THAT(actions.started, SizeIs(1));
  ASSERT_THAT(actions.deliver, SizeIs(1));
  EXPECT_EQ(actions.deliver[0].client, RequestId(2));
  EXPECT_EQ(actions.deliver[0].index, 1U);

  core_.OnCancel(RequestId(1), At(11));  // The older connection breaks: nothing to it.
  EXPECT_TRUE(Take().empty());
  core_.OnToken(KeyOf(100, 1), 2, 72, At(12));
  EXPECT_EQ(Take().deliver.at(0).client, RequestId(2));
  core_.OnRunEnd(KeyOf(100, 1), RunResult{.tokens = 3}, At(13));
  core_.OnFinished(KeyOf(100, 1), SessionOutcome::kCompleted, At(14));
  actions = Take();
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_EQ(actions.end[0].client, RequestId(2));
  EXPECT_THAT(actions.end[0].status, IsOk());
  EXPECT_EQ(core_.stats().attached, 1U);
  EXPECT_TRUE(core_.running_count() == 0);
}

TEST_F(AttachTest, TheSameKeyJoinsFromTheFirstTokenOn) {
  Run();
  core_.OnGenerate(Keyed(2), At(10));
  EXPECT_THAT(Take().deliver, SizeIs(2));
}

TEST_F(AttachTest, TheSameKeyDuringTheGrantWaitsForTheSameAnswer) {
  core_.OnGenerate(Keyed(1), At(0));
  core_.OnGenerate(Keyed(2), At(0));
  SessionsActions actions = Take();
  EXPECT_THAT(actions.find_route, SizeIs(1));
  EXPECT_THAT(actions.rebind, SizeIs(1));
  EXPECT_THAT(actions.started, IsEmpty());
  core_.OnRoute(RequestId(1), RouteOver("a"), At(1));
  core_.OnGranted(RequestId(1), GrantOf(KeyOf(100, 1)), At(1));
  core_.OnOpenReply(KeyOf(100, 1), 0, OpenResult(), At(2));
  EXPECT_EQ(Take().started.at(0).client, RequestId(2));
}

TEST_F(AttachTest, TheSameKeyForAnotherRequestIsAConflictAndHarmsNobody) {
  Run();
  core_.OnGenerate(Keyed(2, "k", 8), At(10));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.end.at(0).status, FailsWith(FailureKind::kKeyConflict));
  EXPECT_EQ(actions.end.at(0).client, RequestId(2));
  EXPECT_THAT(actions.rebind, IsEmpty());
}

TEST_F(AttachTest, AClientThatHoldsOtherTokensIsToldSoAndTheOlderOneGoesOn) {
  Run();
  core_.OnGenerate(Back(2, {70, 99}), At(10));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kDiverged));
  core_.OnGenerate(Back(3, {70, 71, 72}), At(10));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kInvalidRequest));
  core_.OnToken(KeyOf(100, 1), 2, 72, At(12));
  EXPECT_EQ(Take().deliver.at(0).client, RequestId(1));
}

TEST_F(AttachTest, ASessionOfAnOlderCoordinatorGoesOnBehindWhatTheClientHolds) {
  const SessionsActions actions =
      Admit(Back(5, {70, 71}), {.key = KeyOf(100, 2), .granted = true, .known = true});
  EXPECT_THAT(actions.open, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) core_.OnOpenReply(KeyOf(100, 2), i, OpenResult(), At(2));
  EXPECT_THAT(Take().run.at(0).delivered, ElementsAre(70, 71));
  core_.OnToken(KeyOf(100, 2), 2, 72, At(3));
  EXPECT_EQ(Take().deliver.at(0).index, 2U);
}

TEST_F(AttachTest, ASessionOfAnOlderCoordinatorWaitsForARoute) {
  core_.OnGenerate(Back(5, {70}), At(0));
  core_.OnRoute(RequestId(5), MakeFailure(FailureKind::kOverloaded, "loading"), At(0));
  SessionsActions actions = Take();
  ASSERT_THAT(actions.grant, SizeIs(1));  // It may be over: then no route is needed.
  EXPECT_EQ(actions.grant[0].identity.session, SessionId(100));
  core_.OnGranted(RequestId(5), GrantOf(KeyOf(100, 2)), At(1));
  EXPECT_THAT(Take().open, IsEmpty());
  core_.OnRoutesChanged(At(50));
  ASSERT_THAT(Take().find_route, SizeIs(1));
  core_.OnRoute(RequestId(5), RouteOver("a"), At(50));
  EXPECT_EQ(Take().grant.at(0).previous->outcome, SessionOutcome::kFenced);
  core_.OnGranted(RequestId(5), GrantOf(KeyOf(100, 3)), At(51));
  core_.OnOpenReply(KeyOf(100, 3), 0, OpenResult(), At(52));
  actions = Take();
  EXPECT_THAT(actions.started, SizeIs(1));
  EXPECT_THAT(actions.run.at(0).delivered, ElementsAre(70));
}

TEST_F(AttachTest, ACompletedSessionIsAnsweredFromTheLedgerAndRunsNothing) {
  const EndRecord record{.outcome = SessionOutcome::kCompleted, .tokens = 3};
  const SessionsActions actions = Admit(
      Keyed(5), {.key = KeyOf(100, 2), .known = true, .outcome = record, .tokens = {70, 71, 72}});
  EXPECT_THAT(actions.open, IsEmpty());
  EXPECT_THAT(actions.finish, IsEmpty());
  EXPECT_THAT(actions.started, SizeIs(1));
  EXPECT_THAT(actions.deliver, SizeIs(3));
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_THAT(actions.end[0].status, IsOk());
  EXPECT_EQ(actions.end[0].result.tokens, 3U);
  EXPECT_THAT(actions.forget, SizeIs(1));
  EXPECT_TRUE(core_.idle());
}

TEST_F(AttachTest, ACompletedSessionWithoutKeptTokensEndsOnlyForWhoHoldsThemAll) {
  const std::vector<int32_t> all = {70, 71};
  const EndRecord record{
      .outcome = SessionOutcome::kCompleted, .tokens = 2, .digest = TokensDigest(all)};
  const Admitted over{.key = KeyOf(100, 1), .known = true, .outcome = record, .tokens = {}};
  EXPECT_THAT(Admit(Back(5, all), over).end.at(0).status, IsOk());
  EXPECT_THAT(Admit(Back(6, {70}), over).end.at(0).status,
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("not kept")));
}

TEST_F(AttachTest, ASessionThatEndedWithoutAnAnswerSaysAsMuchAgain) {
  const EndRecord cancelled{.outcome = SessionOutcome::kCancelled};
  EXPECT_THAT(
      Admit(Keyed(5), {.key = KeyOf(100, 1), .known = true, .outcome = cancelled, .tokens = {}})
          .end.at(0)
          .status,
      FailsWith(FailureKind::kCancelled));
  const EndRecord poison{.outcome = SessionOutcome::kFailed, .kind = FailureKind::kPoison};
  EXPECT_THAT(
      Admit(Keyed(6), {.key = KeyOf(101, 1), .known = true, .outcome = poison, .tokens = {}})
          .end.at(0)
          .status,
      FailsWith(FailureKind::kPoison));
}

TEST_F(AttachTest, WhoAsksBySessionForOneThatRunsUnderItsKeyJoinsIt) {
  Run();
  core_.OnGenerate(Keyed(2, "other"), At(10));
  core_.OnRoute(RequestId(2), RouteOver("ab"), At(10));
  (void)Take();
  core_.OnGranted(RequestId(2), Admitted{.key = KeyOf(100, 1), .known = true}, At(11));
  const SessionsActions actions = Take();
  ASSERT_THAT(actions.rebind, SizeIs(1));
  EXPECT_EQ(actions.rebind[0].to, RequestId(2));
  EXPECT_THAT(actions.deliver, SizeIs(2));
}

TEST_F(AttachTest, WhoWasToldThatTheRecordIsMissingMayAskAgain) {
  Run();
  core_.OnRunEnd(KeyOf(100, 1), RunResult{.tokens = 2}, At(20));
  core_.OnTick(At(10500));
  EXPECT_THAT(Take().end.at(0).status, FailsWith(FailureKind::kUncertain));
  core_.OnGenerate(Keyed(2), At(10600));
  EXPECT_THAT(Take().deliver, SizeIs(2));
  core_.OnFinished(KeyOf(100, 1), SessionOutcome::kCompleted, At(10700));
  const SessionsActions actions = Take();
  EXPECT_EQ(actions.end.at(0).client, RequestId(2));
  EXPECT_THAT(actions.end.at(0).status, IsOk());
}

TEST_F(AttachTest, WhoTakesOverBeforeTheAnswerIsKnownGetsItFromItsOwnPlaceOn) {
  core_.OnGenerate(Back(5, {70, 71}), At(0));
  core_.OnGenerate(Back(6, {70}), At(0));
  core_.OnRoute(RequestId(5), RouteOver("a"), At(0));
  core_.OnGranted(RequestId(5), GrantOf(KeyOf(100, 2)), At(1));
  core_.OnOpenReply(KeyOf(100, 2), 0, OpenResult(), At(2));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.run.at(0).delivered, ElementsAre(70, 71));
  ASSERT_THAT(actions.deliver, SizeIs(1));
  EXPECT_EQ(actions.deliver[0].client, RequestId(6));
  EXPECT_EQ(actions.deliver[0].token, 71);
}

TEST_F(AttachTest, AnOperatorCancelsBySession) {
  Run();
  EXPECT_FALSE(core_.OnCancelSession(SessionId(101), "", At(10)));
  EXPECT_TRUE(core_.OnCancelSession(SessionId(100), "too long", At(10)));
  const SessionsActions actions = Take();
  EXPECT_THAT(actions.fence, SizeIs(2));
  EXPECT_EQ(actions.finish.at(0).record.outcome, SessionOutcome::kCancelled);
  EXPECT_THAT(actions.finish.at(0).record.detail, HasSubstr("too long"));
}

}  // namespace
}  // namespace shardline
