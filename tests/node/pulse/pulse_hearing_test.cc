#include "node/pulse/pulse_hearing.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

const StagePeer kA = {NodeId("a"), Incarnation(1)};
const StagePeer kB = {NodeId("b"), Incarnation(2)};

class PulseHearingTest : public ::testing::Test {
 protected:
  absl::Status Beat(uint64_t stream, const StagePeer& from, uint64_t number, uint64_t echo,
                    int64_t ms) {
    const absl::StatusOr<uint64_t> answer =
        hearing_.OnBeat(PulseStreamId(stream), from, {.number = number, .echo = echo}, At(ms));
    if (answer.ok()) EXPECT_EQ(*answer, number);
    return answer.status();
  }

  PulseHearing hearing_{PulseOptions{.streams_max = 3}};
};

TEST_F(PulseHearingTest, ASenderThatBeatsButHearsNoAnswerIsSilent) {
  for (uint64_t n = 1; n <= 6; ++n) {
    ASSERT_THAT(Beat(1, kA, n, 0, static_cast<int64_t>(n) * 250), IsOk());
  }
  EXPECT_THAT(hearing_.Silent(At(1749)), IsEmpty());
  EXPECT_THAT(hearing_.Silent(At(1750)), ElementsAre(SilentPeer{kA, absl::Milliseconds(1500)}));
}

TEST_F(PulseHearingTest, OnlyANewerEchoProvesLife) {
  ASSERT_THAT(Beat(1, kA, 1, 0, 0), IsOk());
  ASSERT_THAT(Beat(1, kA, 2, 1, 1000), IsOk());
  ASSERT_THAT(Beat(1, kA, 3, 1, 2000), IsOk());
  EXPECT_THAT(hearing_.Silent(At(2499)), IsEmpty());
  EXPECT_THAT(hearing_.Silent(At(2500)), ElementsAre(SilentPeer{kA, absl::Milliseconds(1500)}));
}

TEST_F(PulseHearingTest, AStreamThatEndsIsForgotten) {
  ASSERT_THAT(Beat(1, kA, 1, 0, 0), IsOk());
  hearing_.OnStreamClosed(PulseStreamId(1));
  EXPECT_THAT(hearing_.Silent(At(9000)), IsEmpty());
}

TEST_F(PulseHearingTest, APeerThatDialledAnewIsNotSilentForItsOldStream) {
  ASSERT_THAT(Beat(1, kA, 1, 0, 0), IsOk());
  ASSERT_THAT(Beat(2, kA, 1, 0, 1400), IsOk());
  EXPECT_THAT(hearing_.Silent(At(1600)), IsEmpty());
}

TEST_F(PulseHearingTest, NumbersThatCannotBeAreRefused) {
  EXPECT_THAT(Beat(1, kA, 0, 0, 0), FailsWith(FailureKind::kInvalidRequest));
  ASSERT_THAT(Beat(2, kA, 1, 0, 0), IsOk());
  EXPECT_THAT(Beat(2, kA, 1, 0, 1), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Beat(2, kA, 2, 2, 1), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Beat(2, kB, 2, 1, 1), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(Beat(2, kA, 2, 1, 1), IsOk());
}

TEST_F(PulseHearingTest, AFloodOfStreamsIsBounded) {
  for (uint64_t stream = 1; stream <= 3; ++stream) ASSERT_THAT(Beat(stream, kA, 1, 0, 0), IsOk());
  EXPECT_THAT(Beat(4, kB, 1, 0, 0), FailsWith(FailureKind::kOverloaded));
  hearing_.OnStreamClosed(PulseStreamId(2));
  EXPECT_THAT(Beat(4, kB, 1, 0, 0), IsOk());
}

}  // namespace
}  // namespace shardline
