// The test of the tests: every bug that can be planted is found, and without one nothing is.

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/planted_bug.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

constexpr uint64_t kSchedulesMax = 10'000;
constexpr uint64_t kSchedulesClean = 5'000;

Batch RunWith(PlantedBug bug, uint64_t count) {
  const int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return RunBatch(
      count, jobs, [](uint64_t i) { return DrawScenario(i); }, true, [bug] { planted_bug = bug; });
}

class PlantedTest : public ::testing::TestWithParam<int> {};

TEST_P(PlantedTest, PlantedBugIsFoundWithinTenThousandSchedules) {
  const auto bug = static_cast<PlantedBug>(GetParam());
  const Batch batch = RunWith(bug, kSchedulesMax);
  EXPECT_GT(batch.failures, 0) << "bug " << GetParam() << " of base/planted_bug.h";
  if (batch.failures == 0) return;
  std::printf("found after %llu schedules: invariant %d: %s\n",
              static_cast<unsigned long long>(batch.schedules),
              batch.first_failures.front().violation.invariant,
              batch.first_failures.front().violation.what.c_str());
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedTest,
                         ::testing::Range(1, static_cast<int>(PlantedBug::kCount)));

TEST(NothingPlantedTest, TheSameSchedulesAreCleanWithoutAPlantedBug) {
  const Batch batch = RunWith(PlantedBug::kNone, kSchedulesClean);
  EXPECT_EQ(batch.failures, 0);
  for (const Failure& failure : batch.first_failures) ADD_FAILURE() << Describe(failure, true);
}

}  // namespace
}  // namespace shardline::sim
