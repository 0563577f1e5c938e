// A few schedules for the sanitizers, one of every kind of fault among them.

#include "gtest/gtest.h"
#include "tests/sim/sim_runs.h"

namespace shardline::sim {
namespace {

TEST(SanitizedTest, SchedulesOfEveryFaultTouchNothingTheyMustNot) {
  const Batch batch = RunBatch(1000, 1, [](uint64_t i) { return DrawScenario(1'000'000 + i); });
  for (const Failure& failure : batch.first_failures) ADD_FAILURE() << Describe(failure, false);
}

}  // namespace
}  // namespace shardline::sim
