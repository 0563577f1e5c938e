#include "node/stage/step_ledger.h"

#include <limits>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;

StepLedger Ledger() { return StepLedger({.session = SessionId(7), .epoch = Epoch(1)}); }

void Apply(StepLedger& ledger, uint64_t step, uint64_t digest) {
  ledger.Begin(StepIndex(step), digest);
  ledger.Commit(StepIndex(step), {.position = static_cast<int32_t>(step)});
}

TEST(StepLedger, RunsStepsInOrder) {
  StepLedger ledger = Ledger();
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5), StepVerdict::kRun);
  EXPECT_THAT(ledger.Judge(StepIndex(1), 5),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("gap; next is 0")));
  Apply(ledger, 0, 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 6), StepVerdict::kRun);
}

TEST(StepLedger, JudgingChangesNothing) {
  StepLedger ledger = Ledger();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*ledger.Judge(StepIndex(0), 5), StepVerdict::kRun);
}

TEST(StepLedger, ACopyOfAStepInFlightIsToldSo) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5), StepVerdict::kInFlight);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 6), FailsWith(FailureKind::kStepConflict));
  EXPECT_TRUE(ledger.InFlight(StepIndex(0)));
}

TEST(StepLedger, RunsAheadByTwoSteps) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 6), StepVerdict::kRun);
  ledger.Begin(StepIndex(1), 6);
  EXPECT_THAT(ledger.Judge(StepIndex(2), 7),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("runs ahead")));
  ledger.Commit(StepIndex(0), {});
  EXPECT_EQ(*ledger.Judge(StepIndex(2), 7), StepVerdict::kRun);
}

TEST(StepLedger, KeepsTheLastTwoOutputs) {
  StepLedger ledger = Ledger();
  for (uint64_t step = 0; step < 3; ++step) Apply(ledger, step, 10 + step);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 10), FailsWith(FailureKind::kUncertain));
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 11), StepVerdict::kReplay);
  EXPECT_EQ(*ledger.Judge(StepIndex(2), 12), StepVerdict::kReplay);
  EXPECT_EQ(ledger.OutputOf(StepIndex(1)).position, 1);
  EXPECT_EQ(ledger.OutputOf(StepIndex(2)).position, 2);
  EXPECT_EQ(ledger.first_retained(), StepIndex(1));
}

TEST(StepLedger, OtherContentUnderAnAppliedKeyIsAConflict) {
  StepLedger ledger = Ledger();
  Apply(ledger, 0, 5);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 6),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("other content")));
}

TEST(StepLedger, ACertainFailureClearsTheMark) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  ledger.Begin(StepIndex(1), 6);
  ledger.AbandonFrom(StepIndex(0));
  EXPECT_FALSE(ledger.InFlight(StepIndex(1)));
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 9), StepVerdict::kRun) << "and other content is free";
}

TEST(StepLedger, AbandoningALaterStepLeavesTheEarlierOne) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  ledger.Begin(StepIndex(1), 6);
  ledger.AbandonFrom(StepIndex(1));
  EXPECT_TRUE(ledger.InFlight(StepIndex(0)));
  EXPECT_FALSE(ledger.InFlight(StepIndex(1)));
}

TEST(StepLedger, TheLargestStepIsAGapAndNotAnOverflow) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  StepLedger ledger = Ledger();
  EXPECT_THAT(ledger.Judge(StepIndex(kMax), 5), FailsWith(FailureKind::kStepConflict));
  Apply(ledger, 0, 5);
  EXPECT_THAT(ledger.Judge(StepIndex(kMax), 5), FailsWith(FailureKind::kStepConflict));
  EXPECT_FALSE(ledger.InFlight(StepIndex(kMax)));
  ledger.AbandonFrom(StepIndex(kMax));
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 5), StepVerdict::kRun);
}

}  // namespace
}  // namespace shardline
