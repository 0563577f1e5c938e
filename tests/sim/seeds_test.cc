// Schedules by the hundred thousand, and what must come up among them.

#include <algorithm>
#include <cstdio>
#include <thread>

#include "gtest/gtest.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

constexpr uint64_t kSchedules = 100'000;

TEST(SeedsTest, AHundredThousandSchedulesKeepEveryInvariantAndHeal) {
  const int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Batch batch = RunBatch(kSchedules, jobs, [](uint64_t i) { return DrawScenario(i); });
  EXPECT_EQ(batch.failures, 0);
  for (const Failure& failure : batch.first_failures) ADD_FAILURE() << Describe(failure, true);
  for (size_t i = 0; i < batch.counts.size(); ++i) {
    EXPECT_GT(batch.counts[i], 0) << "never happened: " << SometimesName(static_cast<Sometimes>(i));
  }
  std::printf("sim_events_per_s %.0f\n", static_cast<double>(batch.events) / batch.seconds);
}

}  // namespace
}  // namespace shardline::sim
