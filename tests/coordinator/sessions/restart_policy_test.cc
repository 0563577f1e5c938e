#include "coordinator/sessions/restart_policy.h"

#include "gtest/gtest.h"
#include "tests/coordinator/sessions/session_steps.h"

namespace shardline {
namespace {

using ::shardline::testing::At;

TEST(RestartPolicy, EveryKindHasItsRule) {
  const auto any = RestartRule::kAnyRoute;
  const auto never = RestartRule::kNever;
  const auto other = RestartRule::kOtherRoute;
  const auto later = RestartRule::kLater;
  const RestartRule expected[] = {never, never, never, never, any,   any,   any,   any,
                                  any,   any,   other, never, never, any,   never, any,
                                  other, later, later, never, never, never, never};
  static_assert(std::size(expected) == kFailureKindCount);
  for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
    EXPECT_EQ(RestartRuleOf(static_cast<FailureKind>(kind)), expected[kind])
        << FailureKindName(static_cast<FailureKind>(kind));
    EXPECT_EQ(RestartMayHelp(static_cast<FailureKind>(kind)), expected[kind] != never);
  }
}

TEST(RestartPolicy, AKindOfALaterBuildIsNeverRestarted) {
  EXPECT_EQ(RestartRuleOf(static_cast<FailureKind>(kFailureKindCount)), RestartRule::kNever);
}

TEST(RestartPolicy, ACallThatNobodyHereCancelledIsALostConnection) {
  EXPECT_TRUE(IsConnectionLoss(MakeFailure(FailureKind::kStreamReset, "reset")));
  EXPECT_TRUE(IsConnectionLoss(MakeFailure(FailureKind::kCancelled, "node stops")));
  EXPECT_TRUE(IsConnectionLoss(absl::UnavailableError("refused")));
  EXPECT_TRUE(IsConnectionLoss(absl::CancelledError("server stops")));
  EXPECT_FALSE(IsConnectionLoss(absl::InternalError("broken")));
  EXPECT_FALSE(IsConnectionLoss(MakeFailure(FailureKind::kWorkerDeath, "gone")));
}

TEST(RestartBudget, AStormIsPacedAndCalmFillsItAgain) {
  RestartBudget budget({.burst = 3, .per_second = 2, .per_session = 0.5});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.Take(At(0)));
  EXPECT_FALSE(budget.Take(At(0)));
  const Instant next = budget.NextAt(At(0));
  EXPECT_EQ(next, At(501));
  EXPECT_FALSE(budget.Take(At(499)));
  EXPECT_TRUE(budget.Take(next));
  EXPECT_FALSE(budget.Take(next));
  budget.OnSessionStarted();
  EXPECT_FALSE(budget.Take(next));
  budget.OnSessionStarted();
  EXPECT_TRUE(budget.Take(next));
  int taken = 0;
  while (budget.Take(At(100'000))) ++taken;
  EXPECT_EQ(taken, 3);  // Never more than the burst.
}

}  // namespace
}  // namespace shardline
