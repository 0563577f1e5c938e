// Who gets no new sessions, and when what runs there has to move.

#include "coordinator/membership/drain_core.h"

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

const NodeId kNode("node-b");

class DrainTest : public ::testing::Test {
 protected:
  size_t Moves() { return core_.TakeActions().move.size(); }

  DrainCore core_;
};

TEST_F(DrainTest, ACordonIsOneWordHoweverOftenItIsSaid) {
  core_.OnCordon(kNode);
  core_.OnCordon(kNode);
  EXPECT_THAT(core_.TakeActions().changed, ElementsAre(kNode));
  EXPECT_TRUE(core_.IsClosed(kNode));
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kCordoned);
  EXPECT_EQ(core_.NextWake(), Instant::InfiniteFuture());
  core_.OnUncordon(kNode);
  core_.OnUncordon(kNode);
  EXPECT_THAT(core_.TakeActions().changed, ElementsAre(kNode));
  EXPECT_FALSE(core_.IsClosed(kNode));
}

TEST_F(DrainTest, WhatRunsMovesOnceAtTheDeadline) {
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(30), At(0)), IsOk());
  core_.OnSessions(kNode, 3);
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kDraining);
  EXPECT_EQ(core_.NextWake(), At(30000));
  core_.OnTick(At(29999));
  EXPECT_EQ(Moves(), 0U);
  core_.OnTick(At(30000));
  core_.OnTick(At(30001));
  EXPECT_EQ(Moves(), 1U);
  core_.OnSessions(kNode, 0);
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kDrained);
}

TEST_F(DrainTest, AnEmptyNodeIsDrainedAtOnce) {
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(30), At(0)), IsOk());
  core_.OnSessions(kNode, 0);
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kDrained);
}

TEST_F(DrainTest, ADrainMayBeBroughtForwardNotPutOff) {
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(30), At(0)), IsOk());
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(60), At(1)), IsOk());
  EXPECT_EQ(core_.NextWake(), At(30000));
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(5), At(2)), IsOk());
  EXPECT_EQ(core_.TimeLeft(kNode, At(2)), absl::Seconds(5));
}

TEST_F(DrainTest, UncordonEndsADrain) {
  ASSERT_THAT(core_.OnDrain(kNode, absl::Seconds(30), At(0)), IsOk());
  core_.OnUncordon(kNode);
  core_.OnTick(At(40000));
  EXPECT_EQ(Moves(), 0U);
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kServing);
}

TEST_F(DrainTest, ADeadlineThatCannotBeIsRefusedAndChangesNothing) {
  EXPECT_THAT(core_.OnDrain(kNode, absl::Seconds(-1), At(0)),
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(core_.OnDrain(kNode, absl::Hours(25), At(0)),
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_FALSE(core_.IsClosed(kNode));
}

TEST_F(DrainTest, WhatANodeAnnouncesEndsWithItsLifeAndACordonDoesNot) {
  core_.OnLeaving(kNode, absl::Seconds(8), At(0));
  core_.OnLeaving(kNode, absl::Milliseconds(7900), At(100));
  core_.OnSessions(kNode, 1);
  EXPECT_EQ(core_.DutyOf(kNode), NodeDuty::kDraining);
  core_.OnUncordon(kNode);  // It leaves all the same.
  EXPECT_TRUE(core_.IsClosed(kNode));
  core_.OnTick(At(8000));
  EXPECT_EQ(Moves(), 1U);
  core_.OnNodeLost(kNode);
  EXPECT_FALSE(core_.IsClosed(kNode));
  core_.OnCordon(kNode);
  core_.OnNodeLost(kNode);
  EXPECT_TRUE(core_.IsClosed(kNode));
}

// A hundred drawn histories: a closed node moves its sessions exactly once a drain, and never
// before its deadline.
TEST_F(DrainTest, AnyOrderOfWordsKeepsTheDeadline) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    uint64_t dice = seed * 2654435761U + 1;
    const auto pick = [&dice](uint64_t n) {
      dice = dice * 6364136223846793005U + 1442695040888963407U;
      return (dice >> 33) % n;
    };
    DrainCore core;
    std::optional<Instant> due;  // The earliest word since the drain began.
    bool moved = false;
    int64_t ms = 0;
    for (int i = 0; i < 100; ++i) {
      ms += static_cast<int64_t>(pick(50));
      const absl::Duration deadline = absl::Milliseconds(pick(200));
      switch (pick(5)) {
        case 0:
          ASSERT_THAT(core.OnDrain(kNode, deadline, At(ms)), IsOk());
          due = due ? std::min(*due, At(ms) + deadline) : At(ms) + deadline;
          break;
        case 1:
          core.OnUncordon(kNode);
          due.reset();
          moved = false;
          break;
        case 2:
          core.OnSessions(kNode, static_cast<int>(pick(3)));
          break;
        default:
          core.OnTick(At(ms));
      }
      const size_t moves = core.TakeActions().move.size();
      if (moves == 0) continue;
      ASSERT_EQ(moves, 1U) << "seed " << seed;
      ASSERT_FALSE(moved) << "seed " << seed;
      ASSERT_TRUE(due && At(ms) >= *due) << "seed " << seed;
      moved = true;
    }
    core.OnTick(At(ms + 1000));
    moved = moved || core.TakeActions().move.size() == 1;
    EXPECT_EQ(moved, due.has_value()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shardline
