#include "gtest/gtest.h"
#include "tests/sim/sim_world.h"

namespace shardline::sim {
namespace {

TEST(DeterminismTest, TheSameSeedLeavesTheSameTraceAHundredTimesOfAHundred) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Scenario scenario = DrawScenario(seed);
    const Outcome first = RunScenario(scenario);
    const Outcome second = RunScenario(scenario);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << scenario.ToString();
    EXPECT_EQ(first.events, second.events);
  }
}

TEST(DeterminismTest, AnotherSeedLeavesAnotherTrace) {
  EXPECT_NE(RunScenario(PlainScenario(1)).trace_hash, RunScenario(PlainScenario(2)).trace_hash);
}

}  // namespace
}  // namespace shardline::sim
