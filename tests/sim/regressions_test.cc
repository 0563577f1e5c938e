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

// What a life had sent on its first connection came after its second and the next life's first.
TEST(RegressionsTest, ALaterLifeShutsOutAllConnectionsOfTheOnesBefore) {
  ExpectClean(
      "world seed=28980 nodes=3 chunk=2 ppm=500 in-flight=4 cache=0;"
      "session at=157 seed=87550 prompt=12 tokens=5 budget=891 key=1;"
      "session at=143 seed=267978 prompt=3 tokens=6 budget=884;"
      "session at=118 seed=85602 prompt=10 tokens=1 budget=1989;"
      "session at=241 seed=87550 prompt=1 tokens=1 budget=891;"
      "at=143 repeat-frames node=99 other=2 amount=100 for=7; at=168 rebirth node=1 amount=1;"
      "at=216 rebirth node=0 amount=1; at=251 half-reset node=1 other=2 amount=1");
}

}  // namespace
}  // namespace shardline::sim
