#include "node/rounds/lap_times.h"

#include "gtest/gtest.h"

namespace shardline {
namespace {

LapTimes Times() { return LapTimes(absl::Seconds(1), absl::Seconds(5)); }

TEST(LapTimes, AllowsTheMostUntilEnoughLapsAreKnown) {
  LapTimes times = Times();
  for (size_t i = 0; i + 1 < LapTimes::kLapsKnownMin; ++i) times.Add(1, absl::Milliseconds(1));
  EXPECT_EQ(times.TimeoutOf(1), absl::Seconds(5));
  times.Add(1, absl::Milliseconds(1));
  EXPECT_EQ(times.TimeoutOf(1), absl::Seconds(1));
}

TEST(LapTimes, IsEightTimesTheSlowestHundredthWithinItsBounds) {
  LapTimes times = Times();
  for (int i = 0; i < 100; ++i) times.Add(1, absl::Milliseconds(i < 98 ? 10 : 300));
  EXPECT_EQ(times.TimeoutOf(1), absl::Milliseconds(2400));
  for (int i = 0; i < 100; ++i) times.Add(1, absl::Seconds(2));
  EXPECT_EQ(times.TimeoutOf(1), absl::Seconds(5));
}

TEST(LapTimes, ForgetsWhatIsLongAgo) {
  LapTimes times = Times();
  for (int i = 0; i < 50; ++i) times.Add(1, absl::Seconds(2));
  for (int i = 0; i < 128; ++i) times.Add(1, absl::Milliseconds(10));
  EXPECT_EQ(times.TimeoutOf(1), absl::Seconds(1));
}

TEST(LapTimes, KeepsSizesApart) {
  LapTimes times = Times();
  for (int i = 0; i < 10; ++i) {
    times.Add(1, absl::Milliseconds(10));
    times.Add(64, absl::Milliseconds(400));
  }
  EXPECT_EQ(times.TimeoutOf(1), absl::Seconds(1));
  EXPECT_EQ(times.TimeoutOf(64), absl::Milliseconds(3200));
  EXPECT_EQ(times.TimeoutOf(127), absl::Milliseconds(3200)) << "one size with 64";
  EXPECT_EQ(times.TimeoutOf(32), absl::Seconds(5)) << "nothing is known of it";
  EXPECT_EQ(times.TimeoutOf(0), absl::Seconds(1)) << "no such size, and no harm";
}

}  // namespace
}  // namespace shardline
