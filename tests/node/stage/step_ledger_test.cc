#include "node/stage/step_ledger.h"

#include <limits>
#include <optional>

#include "gtest/gtest.h"
#include "node/stage/step_chain.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;

constexpr uint64_t kChainStart = 99;

StepLedger Ledger() {
  return StepLedger({.session = SessionId(7), .epoch = Epoch(1)}, kChainStart);
}

void Apply(StepLedger& ledger, uint64_t step, uint64_t digest) {
  ledger.Begin(StepIndex(step), digest);
  ledger.Commit(StepIndex(step), {.position = static_cast<int32_t>(step)});
}

TEST(StepLedger, RunsStepsInOrder) {
  StepLedger ledger = Ledger();
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5, std::nullopt), StepVerdict::kRun);
  EXPECT_THAT(ledger.Judge(StepIndex(1), 5, std::nullopt),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("gap; next is 0")));
  Apply(ledger, 0, 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 6, std::nullopt), StepVerdict::kRun);
}

TEST(StepLedger, JudgingChangesNothing) {
  StepLedger ledger = Ledger();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(*ledger.Judge(StepIndex(0), 5, std::nullopt), StepVerdict::kRun);
}

TEST(StepLedger, ACopyOfAStepInFlightIsToldSo) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5, std::nullopt), StepVerdict::kInFlight);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 6, std::nullopt), FailsWith(FailureKind::kStepConflict));
  EXPECT_TRUE(ledger.InFlight(StepIndex(0)));
}

TEST(StepLedger, RunsAheadByFourSteps) {
  StepLedger ledger = Ledger();
  for (uint64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(*ledger.Judge(StepIndex(step), 5 + step, std::nullopt), StepVerdict::kRun);
    ledger.Begin(StepIndex(step), 5 + step);
  }
  EXPECT_THAT(ledger.Judge(StepIndex(4), 9, std::nullopt),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("runs ahead")));
  ledger.Commit(StepIndex(0), {});
  EXPECT_EQ(*ledger.Judge(StepIndex(4), 9, std::nullopt), StepVerdict::kRun);
}

TEST(StepLedger, KeepsTheLastFourOutputs) {
  StepLedger ledger = Ledger();
  for (uint64_t step = 0; step < 5; ++step) Apply(ledger, step, 10 + step);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 10, std::nullopt), FailsWith(FailureKind::kUncertain));
  for (uint64_t step = 1; step < 5; ++step) {
    EXPECT_EQ(*ledger.Judge(StepIndex(step), 10 + step, std::nullopt), StepVerdict::kReplay);
    EXPECT_EQ(ledger.OutputOf(StepIndex(step)).position, static_cast<int32_t>(step));
  }
  EXPECT_EQ(ledger.first_retained(), StepIndex(1));
}

TEST(StepLedger, OtherContentUnderAnAppliedKeyIsAConflict) {
  StepLedger ledger = Ledger();
  Apply(ledger, 0, 5);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 6, std::nullopt),
              StatusHas(absl::StatusCode::kAborted, HasSubstr("other content")));
}

TEST(StepLedger, ACertainFailureClearsTheMark) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  ledger.Begin(StepIndex(1), 6);
  ledger.AbandonFrom(StepIndex(0));
  EXPECT_FALSE(ledger.InFlight(StepIndex(1)));
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 9, std::nullopt), StepVerdict::kRun)
      << "and other content is free";
}

TEST(StepLedger, AbandoningALaterStepLeavesTheEarlierOne) {
  StepLedger ledger = Ledger();
  ledger.Begin(StepIndex(0), 5);
  ledger.Begin(StepIndex(1), 6);
  ledger.AbandonFrom(StepIndex(1));
  EXPECT_TRUE(ledger.InFlight(StepIndex(0)));
  EXPECT_FALSE(ledger.InFlight(StepIndex(1)));
}

TEST(StepLedger, TheChainFollowsWhatWasTaken) {
  StepLedger ledger = Ledger();
  EXPECT_EQ(ledger.chain_taken(), kChainStart);
  ledger.Begin(StepIndex(0), 5);
  ledger.Begin(StepIndex(1), 6);
  const uint64_t first = ChainNext(kChainStart, StepIndex(0), 5);
  EXPECT_EQ(ledger.taken(), StepIndex(2));
  EXPECT_EQ(ledger.chain_taken(), ChainNext(first, StepIndex(1), 6));
  ledger.AbandonFrom(StepIndex(1));
  EXPECT_EQ(ledger.taken(), StepIndex(1));
  EXPECT_EQ(ledger.chain_taken(), first) << "what was abandoned was never taken";
  ledger.Commit(StepIndex(0), {});
  EXPECT_EQ(ledger.chain_taken(), first);
}

TEST(StepLedger, AStepAfterOtherStepsIsAConflictAndCopiesKnowTheirChain) {
  StepLedger ledger = Ledger();
  EXPECT_THAT(ledger.Judge(StepIndex(0), 5, 98), FailsWith(FailureKind::kStepConflict));
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5, kChainStart), StepVerdict::kRun);
  Apply(ledger, 0, 5);
  EXPECT_EQ(*ledger.Judge(StepIndex(0), 5, kChainStart), StepVerdict::kReplay);
  EXPECT_THAT(ledger.Judge(StepIndex(0), 5, 98), FailsWith(FailureKind::kStepConflict));
  const uint64_t chain = ledger.chain_taken();
  EXPECT_THAT(ledger.Judge(StepIndex(1), 6, kChainStart), FailsWith(FailureKind::kStepConflict));
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 6, chain), StepVerdict::kRun);
}

TEST(StepLedger, TheLargestStepIsAGapAndNotAnOverflow) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  StepLedger ledger = Ledger();
  EXPECT_THAT(ledger.Judge(StepIndex(kMax), 5, std::nullopt),
              FailsWith(FailureKind::kStepConflict));
  Apply(ledger, 0, 5);
  EXPECT_THAT(ledger.Judge(StepIndex(kMax), 5, std::nullopt),
              FailsWith(FailureKind::kStepConflict));
  EXPECT_FALSE(ledger.InFlight(StepIndex(kMax)));
  ledger.AbandonFrom(StepIndex(kMax));
  EXPECT_EQ(*ledger.Judge(StepIndex(1), 5, std::nullopt), StepVerdict::kRun);
}

}  // namespace
}  // namespace shardline
