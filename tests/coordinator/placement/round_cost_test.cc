#include "coordinator/placement/round_cost.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::SizeIs;

StageCost Stage(double step_ms, double row_ms, const std::string& machine = "",
                std::vector<uint32_t> cpus = {}) {
  return {.cost = {.step = absl::Milliseconds(step_ms), .row = absl::Milliseconds(row_ms)},
          .machine = machine,
          .cpus = std::move(cpus)};
}

std::vector<StageCost> OwnHardware(size_t count) {
  return std::vector<StageCost>(count, Stage(6, 1.5));
}

// Two cores of one machine, a stage on each; a step of either streams 100 MB.
std::vector<StageCost> TwoPinned(double step_ms, double row_ms, double read_bytes_per_s) {
  std::vector<StageCost> stages = {Stage(step_ms, row_ms, "box", {0}),
                                   Stage(step_ms, row_ms, "box", {1})};
  for (StageCost& stage : stages) {
    stage.weight_bytes = 100'000'000;
    stage.read_bytes_per_s = read_bytes_per_s;
  }
  return stages;
}

TEST(RoundCostTest, StagesOnTheirOwnHardwareGetOneRoundMoreThanThereAreStages) {
  EXPECT_EQ(ChooseRounds(OwnHardware(2)).in_flight, 3);
  EXPECT_EQ(ChooseRounds(OwnHardware(3)).in_flight, 4);
}

TEST(RoundCostTest, OneStageGetsOneRound) { EXPECT_EQ(ChooseRounds(OwnHardware(1)).in_flight, 1); }

TEST(RoundCostTest, NoMoreRoundsThanAStageRetainsStepsOfAnAttempt) {
  EXPECT_EQ(ChooseRounds(OwnHardware(7)).in_flight, kRoundsForecastMax);
  EXPECT_THAT(ForecastRounds(OwnHardware(7)), SizeIs(kRoundsForecastMax));
}

TEST(RoundCostTest, StagesOnTheSameCoresGetOneRound) {
  for (const size_t count : {2, 3, 4}) {
    const std::vector<StageCost> anywhere(count, Stage(6, 1.5, "box"));
    EXPECT_EQ(ChooseRounds(anywhere).in_flight, 1) << count;
    const std::vector<StageCost> listed(count, Stage(6, 1.5, "box", {0, 1}));
    EXPECT_EQ(ChooseRounds(listed).in_flight, 1) << count;
  }
}

TEST(RoundCostTest, CoresAreSharedOnlyWithinOneMachine) {
  const std::vector<StageCost> apart = {Stage(6, 1.5, "box-a", {0}), Stage(6, 1.5, "box-b", {0})};
  EXPECT_EQ(ChooseRounds(apart).in_flight, 3);
}

TEST(RoundCostTest, SharingOfCoresIsPassedOn) {
  const std::vector<StageCost> chain = {Stage(6, 1.5, "box", {0, 1}), Stage(6, 1.5, "box", {2, 3}),
                                        Stage(6, 1.5, "box", {1, 2})};
  EXPECT_EQ(ChooseRounds(chain).in_flight, ChooseRounds({chain[2], chain[0], chain[1]}).in_flight);
}

TEST(RoundCostTest, FewThreadsLeaveCoresToTheOtherStages) {
  std::vector<StageCost> stages(2, Stage(6, 1.5, "box", {0, 1}));
  for (StageCost& stage : stages) stage.threads = 1;
  EXPECT_EQ(ChooseRounds(stages).in_flight, 3);
  for (StageCost& stage : stages) stage.threads = 2;
  EXPECT_EQ(ChooseRounds(stages).in_flight, 1);
}

TEST(RoundCostTest, ABusThatOneStageFillsIsWorthOneRound) {
  // A step is nothing but the stream of its weights, and rows cost next to nothing.
  const double read = 1e10;
  const std::vector<StageCost> stages = TwoPinned(10, 0.001, read);
  EXPECT_EQ(ChooseRounds(stages).in_flight, 1);
  // A round has the bus for 10 ms twice.
  for (const RoundForecast& forecast : ForecastRounds(stages)) {
    EXPECT_LE(forecast.full_rounds_per_s, 50.0) << forecast.in_flight;
  }
}

TEST(RoundCostTest, ABusLeavesRoomForArithmetic) {
  // As two cores of a small machine: a row costs a quarter of the stream.
  EXPECT_GE(ChooseRounds(TwoPinned(10, 2.5, 2e10)).in_flight, 2);
}

TEST(RoundCostTest, DecodingIsNeverSlowerThanWithOneRound) {
  // Rows are almost free, so every round more reads all weights again for fewer rows.
  for (const double row_ms : {0.0, 0.001, 0.01, 0.1, 1.0}) {
    const std::vector<StageCost> stages(3, Stage(50, row_ms));
    const int32_t chosen = ChooseRounds(stages).in_flight;
    const std::vector<RoundForecast> forecasts = ForecastRounds(stages);
    EXPECT_GE(forecasts[static_cast<size_t>(chosen - 1)].decode_tokens_per_s,
              0.98 * forecasts[0].decode_tokens_per_s)
        << row_ms;
  }
}

TEST(RoundCostTest, OneSessionLosesNothingByMoreRounds) {
  const std::vector<RoundForecast> forecasts = ForecastRounds(OwnHardware(3), {.sessions = 1});
  for (const RoundForecast& forecast : forecasts) {
    EXPECT_DOUBLE_EQ(forecast.decode_tokens_per_s, forecasts[0].decode_tokens_per_s);
  }
}

TEST(RoundCostTest, ABottleneckStageWantsFewerRounds) {
  const std::vector<StageCost> stages = {Stage(1, 0.1), Stage(40, 4), Stage(1, 0.1)};
  EXPECT_LT(ChooseRounds(stages).in_flight, ChooseRounds(OwnHardware(3)).in_flight);
}

TEST(RoundCostTest, TheHeadPaysItsFinishToo) {
  std::vector<StageCost> stages = OwnHardware(2);
  const double before = ForecastRounds(stages)[1].full_rounds_per_s;
  stages[0].cost.finish_step = absl::Milliseconds(3);
  stages[0].cost.finish_row = absl::Milliseconds(1);
  EXPECT_LT(ForecastRounds(stages)[1].full_rounds_per_s, before);
  std::vector<StageCost> rows_alone = OwnHardware(2);
  rows_alone[0].cost.finish_row = absl::Milliseconds(1);
  EXPECT_LT(ForecastRounds(rows_alone)[1].full_rounds_per_s, before);
  const RoundChoice choice = ChooseRounds(stages);
  EXPECT_EQ(choice.lap_step, absl::Milliseconds(15));
  EXPECT_EQ(choice.lap_row, absl::Milliseconds(4));
}

TEST(RoundCostTest, WithoutMeasuresTheShapeOfTheRingDecidesAndNoCostIsTold) {
  const StageCost unmeasured = {.weight_bytes = 1'000'000'000, .read_bytes_per_s = 2e10};
  const RoundChoice apart = ChooseRounds({unmeasured, unmeasured});
  EXPECT_EQ(apart.in_flight, 3);
  EXPECT_EQ(apart.lap_step, absl::ZeroDuration());
  EXPECT_EQ(apart.lap_row, absl::ZeroDuration());
  StageCost shared = unmeasured;
  shared.machine = "box";
  EXPECT_EQ(ChooseRounds({shared, shared}).in_flight, 1);
  EXPECT_EQ(ChooseRounds({StageCost(), StageCost()}).in_flight, 3);
  EXPECT_EQ(ChooseRounds({}).in_flight, 1);
}

// Else the head would take many drafts for free next to one that did measure.
TEST(RoundCostTest, NoCostIsToldWhereAStageWasTooLargeToMeasureItsRows) {
  const RoundChoice choice = ChooseRounds({Stage(6, 1.5), Stage(400, 0)});
  EXPECT_EQ(choice.lap_step, absl::ZeroDuration());
  EXPECT_EQ(choice.lap_row, absl::ZeroDuration());
}

// Any ring: more rounds never begin less often, and a dearer stage never lets more begin.
TEST(RoundCostTest, ForecastsAreMonotonous) {
  std::mt19937 random(7);
  const auto draw = [&random](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int ring = 0; ring < 500; ++ring) {
    std::vector<StageCost> stages;
    for (int i = 0, count = 1 + draw(5); i < count; ++i) {
      stages.push_back(Stage(0.1 + draw(50), 0.01 * draw(300), draw(2) == 0 ? "" : "box",
                             {static_cast<uint32_t>(draw(3)), static_cast<uint32_t>(draw(3))}));
      stages.back().weight_bytes = static_cast<uint64_t>(draw(1000)) << 20;
      stages.back().read_bytes_per_s = 1e9 * (1 + draw(30));
    }
    const std::vector<RoundForecast> forecasts = ForecastRounds(stages);
    for (size_t i = 1; i < forecasts.size(); ++i) {
      EXPECT_GE(forecasts[i].full_rounds_per_s, 0.999999 * forecasts[i - 1].full_rounds_per_s);
    }
    std::vector<StageCost> dearer = stages;
    dearer[static_cast<size_t>(draw(static_cast<int>(stages.size())))].cost.row +=
        absl::Milliseconds(1);
    const std::vector<RoundForecast> slower = ForecastRounds(dearer);
    for (size_t i = 0; i < forecasts.size(); ++i) {
      EXPECT_LE(slower[i].full_rounds_per_s, forecasts[i].full_rounds_per_s);
      EXPECT_LE(slower[i].decode_tokens_per_s, forecasts[i].decode_tokens_per_s);
    }
  }
}

}  // namespace
}  // namespace shardline
