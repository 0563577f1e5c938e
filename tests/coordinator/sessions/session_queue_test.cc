// Sessions that find no room: they wait, in turn, without spending their attempts.

#include <map>
#include <vector>

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

// One ring of `pages` pages a stage, of a token each, whose prompts share a prefix: who opens while
// another one holds it needs the rest alone. Everything is answered at once, but runs end when
// told.
class Ring {
 public:
  Ring(uint32_t pages, uint32_t shared, const AdmissionOptions& admission)
      : pages_(pages), shared_(shared), core_(SessionsOptions{.admission = admission}) {}

  void Ask(uint64_t request, uint32_t tokens, const std::string& tenant = "",
           absl::Duration budget = absl::Seconds(10)) {
    SessionRequest asked = ARequest(request);
    asked.prompt_tokens = tokens - 1;
    asked.new_tokens_max = 1;
    asked.identity.tenant = tenant;
    asked.budget = budget;
    core_.OnGenerate(asked, At(ms_));
    Settle();
  }
  // The run of this request comes to its end.
  void EndRun(uint64_t request) {
    const AttemptKey key = running_.at(RequestId(request));
    core_.OnToken(key, 0, 7, At(ms_));
    core_.OnRunEnd(key, RunResult{.reason = FinishReason::kLength, .tokens = 1}, At(ms_));
    Settle();
  }
  void EndAnyRun() { EndRun(running_.begin()->first.value()); }
  void Pass(int64_t ms) {
    ms_ += ms;
    core_.OnTick(At(ms_));
    Settle();
  }

  SessionsCore& core() { return core_; }
  int64_t ms() const { return ms_; }
  const std::map<RequestId, AttemptKey>& running() const { return running_; }
  const std::map<RequestId, absl::Status>& ended() const { return ended_; }
  uint32_t used() const {
    uint32_t used = holds_.empty() ? 0 : shared_;
    for (const auto& [key, own] : holds_) used += own;
    return used;
  }
  int grants() const { return grants_; }
  // Of the last question for a route that left something out.
  const std::vector<StagePeer>& avoided() const { return avoided_; }

  void Settle() {
    for (SessionsActions actions = core_.TakeActions(); !actions.empty();
         actions = core_.TakeActions()) {
      for (const auto& asked : actions.find_route) {
        if (!asked.avoid.nodes.empty()) avoided_ = asked.avoid.nodes;
        core_.OnRoute(asked.request, RouteOver("ab"), At(ms_));
      }
      for (const auto& grant : actions.grant) Grant(grant);
      for (const auto& fence : actions.fence) Free(fence);
      for (const auto& open : actions.open) Open(open);
      for (const auto& run : actions.run) running_[run.request] = run.key;
      for (const auto& finish : actions.finish) {
        core_.OnFinished(finish.key, finish.record.outcome, At(ms_));
      }
      for (const auto& end : actions.end) {
        EXPECT_TRUE(ended_.emplace(end.request, end.status).second);
        running_.erase(end.request);
      }
    }
  }

 private:
  void Grant(const SessionsActions::Grant& grant) {
    ++grants_;
    const SessionId session = grant.session.value_or(SessionId(100 + grant.request.value()));
    core_.OnGranted(grant.request, GrantOf({session, Epoch(++epochs_[session])}), At(ms_));
  }
  // Stage 0 decides; the other one has as much room.
  void Open(const SessionsActions::Open& open) {
    absl::StatusOr<OpenResult> reply = OpenResult();
    if (open.stage == 0 && used() + Needs(open.tokens_max) > pages_) {
      reply = MakeFailure(FailureKind::kKvExhausted, "no pages");
    } else if (open.stage == 0) {
      holds_[open.key] = open.tokens_max - shared_;
    }
    core_.OnOpenReply(open.key, open.stage, reply, At(ms_));
  }
  uint32_t Needs(uint32_t tokens) const { return holds_.empty() ? tokens : tokens - shared_; }
  void Free(const SessionsActions::Fence& fence) {
    if (fence.stage == 0) holds_.erase(fence.key);
    core_.OnFenceReply(fence.key, fence.stage, FenceResult(), At(ms_));
  }

  const uint32_t pages_;
  const uint32_t shared_;
  SessionsCore core_;
  int64_t ms_ = 0;
  int grants_ = 0;
  std::vector<StagePeer> avoided_;
  std::map<SessionId, uint64_t> epochs_;
  std::map<AttemptKey, uint32_t> holds_;
  std::map<RequestId, AttemptKey> running_;
  std::map<RequestId, absl::Status> ended_;
};

TEST(SessionQueue, WhoFindsNoRoomWaitsAndGoesOnWhenASessionEnds) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  ring.Ask(2, 8);
  EXPECT_EQ(ring.core().List(At(0)).at(1).phase, "waiting in the queue");
  EXPECT_EQ(ring.core().queue().waiting(), 1);
  ring.EndRun(1);
  EXPECT_TRUE(ring.running().contains(RequestId(2)));
  ring.EndRun(2);
  EXPECT_THAT(ring.ended().at(RequestId(2)), IsOk());
  EXPECT_EQ(ring.core().stats().restarts, 0U);
  EXPECT_TRUE(ring.core().idle());
}

TEST(SessionQueue, WaitingSpendsNoAttempts) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  ring.Ask(2, 8);
  for (int i = 0; i < 6; ++i) ring.Pass(1000);  // Tried six times for nothing.
  EXPECT_GT(ring.core().List(At(ring.ms())).at(1).attempts, 3U);
  ring.EndRun(1);
  ASSERT_TRUE(ring.running().contains(RequestId(2)));
  // Nor has it lost any of those that are for failures.
  const AttemptKey key = ring.running().at(RequestId(2));
  ring.core().OnRunFailed(key, MakeFailure(FailureKind::kCacheMiss, "gone"), At(ring.ms()));
  ring.Settle();
  ring.Pass(500);
  EXPECT_TRUE(ring.ended().find(RequestId(2)) == ring.ended().end());
  EXPECT_GT(ring.running().at(RequestId(2)).epoch, key.epoch);
}

TEST(SessionQueue, NothingIsOpenedAndNothingGrantedWhileOthersAreFirst) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  ring.Ask(2, 8);
  const int grants = ring.grants();
  ring.Ask(3, 8);
  EXPECT_EQ(ring.grants(), grants);
  EXPECT_EQ(ring.core().queue().waiting(), 2);
}

TEST(SessionQueue, TheDeadlineCountsWhileItWaits) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  ring.Ask(2, 8, "", absl::Seconds(3));
  ring.Pass(2999);
  EXPECT_THAT(ring.ended(), IsEmpty());
  ring.Pass(1);
  EXPECT_THAT(ring.ended().at(RequestId(2)), FailsWith(FailureKind::kDeadlineExceeded));
  EXPECT_EQ(ring.core().queue().waiting(), 0);
}

TEST(SessionQueue, WhoHangsUpLeavesAtOnceAndTheNextOneHasItsTurn) {
  Ring ring(10, 0, {.passes_max = 0});
  ring.Ask(1, 6);
  ring.Ask(2, 8);
  ring.Ask(3, 4);
  EXPECT_FALSE(ring.running().contains(RequestId(3)));  // Nobody passes.
  ring.core().OnCancel(RequestId(2), At(1));
  ring.Settle();
  EXPECT_THAT(ring.ended().at(RequestId(2)), FailsWith(FailureKind::kCancelled));
  ring.Pass(1000);
  EXPECT_TRUE(ring.running().contains(RequestId(3)));
}

TEST(SessionQueue, AFullQueueRefusesAndSaysWhatHasNoRoom) {
  Ring ring(10, 0, {.waiting_max = 1});
  ring.Ask(1, 8);
  ring.Ask(2, 8);
  ring.Ask(3, 8);
  const absl::Status status = ring.ended().at(RequestId(3));
  EXPECT_THAT(status, FailsWith(FailureKind::kOverloaded));
  EXPECT_GE(FailureDetailOf(status).retry_after, absl::Seconds(1));
  EXPECT_LE(FailureDetailOf(status).retry_after, absl::Seconds(60));
}

TEST(SessionQueue, AFailedOverSessionWaitsAheadOfNewcomers) {
  Ring ring(10, 0, {});
  ring.Ask(1, 4);
  ring.Ask(2, 6);
  ring.Ask(3, 6);  // Waits.
  const AttemptKey key = ring.running().at(RequestId(2));
  ring.core().OnRunFailed(key, MakeFailure(FailureKind::kOverloaded, "no slot"), At(1));
  ring.Settle();
  EXPECT_EQ(ring.core().queue().waiting(), 2);
  ring.EndRun(1);
  EXPECT_TRUE(ring.running().contains(RequestId(2)));
}

TEST(SessionQueue, AKeyIsLookedUpInTheLedgerBeforeItWaits) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  ring.Ask(2, 8);
  SessionRequest asked = ARequest(3);
  asked.identity.key = "again";
  ring.core().OnGenerate(asked, At(0));
  ring.core().OnRoute(RequestId(3), RouteOver("ab"), At(0));
  EXPECT_THAT(ring.core().TakeActions().grant, SizeIs(1));
  ring.core().OnGranted(RequestId(3), GrantOf(KeyOf(103, 1)), At(0));
  EXPECT_TRUE(ring.core().TakeActions().empty());  // Its turn has not come.
  EXPECT_EQ(ring.core().queue().waiting(), 2);
}

TEST(SessionQueue, ADrainedNodesSessionsGoOnElsewhereWithoutSpendingAttempts) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  for (uint64_t epoch = 2; epoch < 7; ++epoch) {
    ring.core().OnNodeDrained(NodeId("node-b"), "drained", At(ring.ms()));
    ring.Settle();
    ring.Pass(1000);  // There is no other route, and then there is.
    EXPECT_THAT(ring.avoided(), ElementsAre(StagePeer{NodeId("node-b"), Incarnation(2)}));
    EXPECT_EQ(ring.running().at(RequestId(1)).epoch, Epoch(epoch));
  }
  EXPECT_EQ(ring.core().stats().restarts, 0U);
}

// Else its own fence would be the room it waits for.
TEST(SessionQueue, AHeadThatRefusesEveryRunIsNotAskedAgainAtOnce) {
  Ring ring(10, 0, {});
  ring.Ask(1, 8);
  const int grants = ring.grants();
  for (int i = 0; i < 5; ++i) {
    const AttemptKey key = ring.running().at(RequestId(1));
    ring.core().OnRunFailed(key, MakeFailure(FailureKind::kOverloaded, "no slot"), At(ring.ms()));
    ring.Settle();
    EXPECT_EQ(ring.grants(), grants + i);
    ring.Pass(1000);
  }
}

TEST(SessionQueue, AProbeIsRecordedAsSuchAndBillsNothing) {
  SessionsCore core{SessionsOptions{}};
  SessionRequest probe = ARequest();
  probe.route = RouteOver("a");
  core.OnGenerate(probe, At(0));
  core.OnGranted(RequestId(1), GrantOf(KeyOf(100, 1)), At(0));
  core.OnOpenReply(KeyOf(100, 1), 0, OpenResult(), At(0));
  core.OnToken(KeyOf(100, 1), 0, 7, At(1));
  core.OnRunEnd(KeyOf(100, 1), RunResult{.reason = FinishReason::kLength, .tokens = 1}, At(1));
  const SessionsActions actions = core.TakeActions();
  ASSERT_THAT(actions.finish, SizeIs(1));
  EXPECT_EQ(actions.finish[0].record.outcome, SessionOutcome::kCompleted);
  EXPECT_EQ(actions.finish[0].record.tokens, 0U);
  EXPECT_EQ(actions.finish[0].record.work_tokens, 6U);
  EXPECT_EQ(actions.finish[0].record.detail, "probe");
  core.OnFinished(KeyOf(100, 1), SessionOutcome::kCompleted, At(2));
  EXPECT_EQ(core.stats().tokens_billed, 0U);
}

TEST(SessionQueue, WhatCanNeverFitIsRefusedAtOnceWithBothNumbers) {
  SessionsCore core{SessionsOptions{}};
  SessionRequest asked = ARequest();
  asked.prompt_tokens = 100;
  asked.new_tokens_max = 61;
  core.OnGenerate(asked, At(0));
  Route route = RouteOver("ab");
  route.kv_pages_min = 10;
  core.OnRoute(RequestId(1), route, At(0));
  const SessionsActions actions = core.TakeActions();
  ASSERT_THAT(actions.end, SizeIs(1));
  EXPECT_THAT(actions.grant, IsEmpty());
  EXPECT_THAT(actions.end[0].status,
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("11 KV pages")));
  EXPECT_THAT(std::string(actions.end[0].status.message()), HasSubstr("have 10 in all"));
}

// The admission trap: what all share fits once, and much of it is shared.
TEST(SessionQueue, ThirtyTwoWithASharedPrefixOf59Of96PagesAllFinish) {
  Ring ring(96, 59, {});
  for (uint64_t r = 1; r <= 32; ++r)
    ring.Ask(r, 63, std::string(1, static_cast<char>('a' + r % 3)));
  size_t most = 0;
  for (int rounds = 0; rounds < 200 && ring.ended().size() < 32; ++rounds) {
    ASSERT_LE(ring.used(), 96U);
    most = std::max(most, ring.running().size());
    ring.EndAnyRun();
  }
  ASSERT_THAT(ring.ended(), SizeIs(32));
  for (const auto& [request, status] : ring.ended()) EXPECT_THAT(status, IsOk());
  EXPECT_EQ(ring.used(), 0U);
  EXPECT_GE(most, 9U);  // (96 - 59) / 4: sharing was used.
  EXPECT_LE(ring.grants(), 32 * 3);
  EXPECT_TRUE(ring.core().idle());
  EXPECT_EQ(ring.core().queue().waiting(), 0);
}

}  // namespace
}  // namespace shardline
