// The small world, exhaustively: three nodes, one session, four tokens.

#include <algorithm>
#include <cstdio>
#include <thread>

#include "gtest/gtest.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

void ExpectClean(const std::vector<Scenario>& scenarios) {
  const int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Batch batch = RunBatch(scenarios.size(), jobs, [&](uint64_t i) { return scenarios[i]; });
  EXPECT_EQ(batch.schedules, scenarios.size());
  EXPECT_EQ(batch.failures, 0);
  std::printf("%llu schedules, %llu events\n", static_cast<unsigned long long>(batch.schedules),
              static_cast<unsigned long long>(batch.events));
  for (const Failure& failure : batch.first_failures) ADD_FAILURE() << Describe(failure, true);
}

TEST(SweepTest, OneFaultOfEachKindBeforeEveryEventIsBorne) { ExpectClean(SweepScenarios(1)); }

TEST(SweepTest, EveryPairOfKillCancelDeadlineAndResetIsBorne) { ExpectClean(PairScenarios(1, 1)); }

}  // namespace
}  // namespace shardline::sim
