#include "tests/sim/scenario.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

TEST(ScenarioTest, WhatIsPrintedIsWhatIsRead) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Scenario scenario = DrawScenario(seed);
    const absl::StatusOr<Scenario> read = Scenario::Parse(scenario.ToString());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, scenario) << scenario.ToString();
  }
}

TEST(ScenarioTest, ALineBreakIsAsGoodAsASemicolon) {
  const auto scenario = Scenario::Parse("world seed=7\nat=12 kill node=1 for=400\n");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  ASSERT_EQ(scenario->faults.size(), 1);
  EXPECT_EQ(scenario->faults[0].kind, FaultKind::kKill);
  EXPECT_EQ(scenario->faults[0].at, 12);
  EXPECT_EQ(scenario->faults[0].length, 400 * kMillisecond);
}

TEST(ScenarioTest, WhatIsNotKnownIsRefusedByName) {
  const auto message = [](std::string_view text) {
    return std::string(Scenario::Parse(text).status().message());
  };
  EXPECT_THAT(message("at=1 explode node=1"), ::testing::HasSubstr("no such fault"));
  EXPECT_THAT(message("at=1 kill nod=1"), ::testing::HasSubstr("'nod' is not known"));
  EXPECT_THAT(message("at=x kill"), ::testing::HasSubstr("'x' is not a number"));
  EXPECT_THAT(message("world nodes=1 stages=2"), ::testing::HasSubstr("stages"));
}

TEST(ScenarioTest, TheShrinkerKeepsWhatMatters) {
  // Nothing is wrong with it, so nothing can be taken away.
  const Scenario fine = DrawScenario(1);
  EXPECT_EQ(Shrink(fine, 21), fine);
}

}  // namespace
}  // namespace shardline::sim
