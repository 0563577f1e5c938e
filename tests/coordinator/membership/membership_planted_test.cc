// Each guard of membership taken out on its own: the harm that it prevents must show.

#include "base/planted_bug.h"
#include "base/version.h"
#include "coordinator/membership/membership_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

class MembershipPlantedTest : public ::testing::TestWithParam<bool> {
 protected:
  ~MembershipPlantedTest() override { planted_bug = PlantedBug::kNone; }

  // Plants `bug` in half of the runs.
  void Plant(PlantedBug bug) {
    if (GetParam()) planted_bug = bug;
  }

  void SayHello(uint64_t stream, const std::string& boot, int64_t ms) {
    core_.OnHello(JoinStreamId(stream),
                  NodeHello{.protocol_min = kProtocolVersionMin,
                            .protocol_max = kProtocolVersionMax,
                            .node = NodeId("a"),
                            .address = "a:1",
                            .boot_id = boot},
                  At(ms));
  }

  // Beats for `until` ms; says whether the node was lost.
  bool BeatsLose(int64_t until_ms, bool echoes, uint64_t jobs_started, uint64_t jobs_done) {
    bool lost = false;
    for (uint64_t n = 1; static_cast<int64_t>(n) * 250 <= until_ms && !lost; ++n) {
      const Instant now = At(static_cast<int64_t>(n) * 250);
      core_.OnBeat(JoinStreamId(1),
                   {.number = n,
                    .echo = echoes ? n - 1 : 0,
                    .jobs_started = jobs_started,
                    .jobs_done = jobs_done},
                   now);
      core_.OnTick(now);
      lost = !core_.TakeActions().lost.empty();
    }
    return lost;
  }

  MembershipCore core_{MembershipOptions{}, Incarnation(1)};
};

TEST_P(MembershipPlantedTest, ANodeThatCannotHearIsKeptOnlyIfArrivalCountsAsLife) {
  Plant(PlantedBug::kArrivalCountsAsLife);
  SayHello(1, "boot-1", 0);
  EXPECT_EQ(BeatsLose(10'000, /*echoes=*/false, 0, 0), !GetParam());
}

TEST_P(MembershipPlantedTest, AWedgedDeviceIsKeptOnlyIfItGoesUnnoticed) {
  Plant(PlantedBug::kWedgeGoesUnnoticed);
  SayHello(1, "boot-1", 0);
  EXPECT_EQ(BeatsLose(20'000, /*echoes=*/true, 8, 7), !GetParam());
  EXPECT_GT(core_.NextWake(), At(20'000));
}

TEST_P(MembershipPlantedTest, ASuccessorIsWelcomedBeforeTheFenceOnlyIfPlanted) {
  Plant(PlantedBug::kSuccessorBeforeFence);
  SayHello(1, "boot-1", 0);
  (void)core_.TakeActions();
  SayHello(2, "boot-2", 100);
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.welcome, SizeIs(1));
  if (GetParam()) {
    EXPECT_THAT(actions.lost, IsEmpty());
  } else {
    EXPECT_THAT(actions.lost, SizeIs(1));
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithout, MembershipPlantedTest, ::testing::Bool());

}  // namespace
}  // namespace shardline
