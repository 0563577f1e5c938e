// How many drafts pay, and whose.

#include "node/rounds/drafter.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr LapCost kCost = {absl::Milliseconds(10), absl::Milliseconds(1)};

std::vector<Draft> Chances(size_t count, float chance) {
  return std::vector<Draft>(count, Draft{.token = 1, .chance = chance});
}

TEST(DraftPricer, RowsRideForFreeUpToTheCostOfAStep) {
  const DraftPricer pricer({}, kCost);
  EXPECT_EQ(pricer.FreeRows(1), 9);
  EXPECT_EQ(pricer.FreeRows(9), 1);
  EXPECT_EQ(pricer.FreeRows(10), 0);
  EXPECT_EQ(pricer.FreeRows(0x7fffffff), 0);
  EXPECT_EQ(pricer.Price(Chances(15, 1.0F), 10), 0U);
  EXPECT_EQ(pricer.Price(Chances(15, 1.0F), 1), 9U);
}

TEST(DraftPricer, SellsNoMoreThanIsLikely) {
  const DraftPricer pricer({}, kCost);
  EXPECT_EQ(pricer.Price(Chances(15, 0.05F), 1), 0U);
  const size_t even = pricer.Price(Chances(15, 0.5F), 1);
  const size_t sure = pricer.Price(Chances(15, 0.95F), 1);
  EXPECT_GT(even, 0U);
  EXPECT_GT(sure, even);
  EXPECT_LT(pricer.Price(Chances(15, 0.5F), 6), even) << "in a full round a row costs more";
}

TEST(DraftPricer, TakesTheDefaultForARouteThatWasNotMeasured) {
  const DraftPricer pricer({}, {.step = absl::Milliseconds(3)});
  EXPECT_EQ(pricer.cost().step, kLapCostDefault.step);
  EXPECT_EQ(pricer.cost().row, kLapCostDefault.row);
}

TEST(DraftPricer, NeverLooksAtTheClockUnlessTimed) {
  DraftPricer table({}, kCost);
  DraftPricer timed({.timed = true}, kCost);
  for (int i = 0; i < 100; ++i) {
    for (DraftPricer* pricer : {&table, &timed}) {
      pricer->Observe(1, absl::Milliseconds(11));
      pricer->Observe(5, absl::Milliseconds(31));
    }
  }
  EXPECT_EQ(table.cost().row, kCost.row);
  EXPECT_GT(timed.cost().row, absl::Milliseconds(4));
  EXPECT_EQ(timed.FreeRows(1), 1);
}

// Says one thing always.
class Stubborn : public Proposer {
 public:
  Stubborn(int32_t token, float chance) : draft_{.token = token, .chance = chance} {}
  std::string_view name() const override { return "stubborn"; }
  void Accept(std::span<const int32_t>) override {}
  std::vector<Draft> Propose(size_t count) const override {
    return std::vector<Draft>(count, draft_);
  }

 private:
  const Draft draft_;
};

Drafter DrafterOf(std::vector<Draft> sayings) {
  std::vector<std::unique_ptr<Proposer>> proposers;
  for (const Draft& draft : sayings) {
    proposers.push_back(std::make_unique<Stubborn>(draft.token, draft.chance));
  }
  return Drafter(std::move(proposers), DraftPricer({}, kCost), 100);
}

TEST(Drafter, StopsBelievingWhoIsWrong) {
  Drafter drafter = DrafterOf({{.token = 7, .chance = 1.0F}});
  EXPECT_THAT(drafter.Propose(1, 15, {}), SizeIs(9));
  for (int32_t i = 8; i < 60; ++i) drafter.Accept({&i, 1});
  EXPECT_THAT(drafter.Propose(1, 15, {}), IsEmpty());
}

TEST(Drafter, ComesToBelieveWhoIsRight) {
  Drafter drafter = DrafterOf({{.token = 7, .chance = 0.05F}});
  EXPECT_THAT(drafter.Propose(1, 15, {}), IsEmpty());
  const std::vector<int32_t> sevens(30, 7);
  drafter.Accept(sevens);
  EXPECT_THAT(drafter.Propose(1, 15, {}), SizeIs(Gt(5U)));
}

TEST(Drafter, AsksTheProposerThatPromisesMost) {
  Drafter drafter = DrafterOf({{.token = 7, .chance = 0.9F}, {.token = 8, .chance = 0.5F}});
  EXPECT_EQ(drafter.Propose(1, 1, {}), std::vector<int32_t>{7});
  const std::vector<int32_t> eights(30, 8);
  drafter.Accept(eights);
  EXPECT_EQ(drafter.Propose(1, 1, {}), std::vector<int32_t>{8});
}

TEST(Drafter, ProposesNoStopNoStrangerAndNothingBehindThem) {
  EXPECT_THAT(DrafterOf({{.token = 7, .chance = 1.0F}}).Propose(1, 15, std::vector<int32_t>{7}),
              IsEmpty());
  for (const int32_t stranger : {-1, 100, 0x7fffffff}) {
    EXPECT_THAT(DrafterOf({{.token = stranger, .chance = 1.0F}}).Propose(1, 15, {}), IsEmpty());
  }
}

TEST(Drafter, KeepsWithinItsLimits) {
  const Drafter drafter = DrafterOf({{.token = 7, .chance = 1.0F}});
  EXPECT_THAT(drafter.Propose(1, 2, {}), SizeIs(2));
  EXPECT_THAT(drafter.Propose(1, 0, {}), IsEmpty());
  EXPECT_THAT(drafter.Propose(1, -3, {}), IsEmpty());
  EXPECT_THAT(drafter.Propose(10, 15, {}), IsEmpty()) << "no free rows";
}

TEST(Drafter, DraftsTheSameAfterARestart) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<int32_t> answer = {3, 4, 5, 6, 1, 2, 3, 4, 5};
  Drafter live(DefaultProposers(), DraftPricer({}, kCost), 100);
  live.Read(prompt);
  for (const int32_t token : answer) {
    (void)live.Propose(1, 15, {});
    live.Accept({&token, 1});
  }
  Drafter again(DefaultProposers(), DraftPricer({}, kCost), 100);
  again.Read(std::span(prompt).first(4));
  again.Read(std::span(prompt).subspan(4));
  again.Accept(answer);
  EXPECT_EQ(live.Propose(1, 15, {}), again.Propose(1, 15, {}));
  EXPECT_THAT(live.Propose(1, 1, {}), ElementsAre(6));
}

}  // namespace
}  // namespace shardline
