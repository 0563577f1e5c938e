// Schedules that once found a bug, by the claim that it broke.

#include <string_view>

#include "gtest/gtest.h"
#include "tests/sim/sim_world.h"

namespace shardline::sim {
namespace {

void ExpectClean(std::string_view text) {
  const absl::StatusOr<Scenario> scenario = Scenario::Parse(text);
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const Outcome outcome = RunScenario(*scenario);
  EXPECT_TRUE(outcome.ok()) << outcome.violation->invariant << ": " << outcome.violation->what
                            << "\n"
                            << outcome.tail;
}

TEST(RegressionsTest, ARouteTableSleepsWhileALostRangeIsNotYetDueAlthoughALinkIs) {
  ExpectClean(
      "world seed=3866 nodes=3 resume=0 linger=1;"
      "session at=127 seed=5035 prompt=1 tokens=1 budget=3713;"
      "at=142 device-lost node=0 amount=12; at=246 cut node=99 other=2 amount=1 for=6000;"
      "at=255 cut node=0 other=1 amount=1 for=2200");
}

}  // namespace
}  // namespace shardline::sim
