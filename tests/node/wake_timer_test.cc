#include "node/wake_timer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "base/mailbox.h"

namespace shardline {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(WakeTimer, AnEarlierTimeReplacesALaterOne) {
  Mailbox<int> wakes(8);
  WakeTimer timer(SystemClock(), [&] { (void)wakes.TryPost(1); });
  timer.Set(SystemClock()->Now() + absl::Hours(1));
  timer.Set(SystemClock()->Now() + absl::Milliseconds(1));
  EXPECT_TRUE(wakes.Take(kPatience).has_value());
  EXPECT_EQ(wakes.size(), 0U);
}

TEST(WakeTimer, ItIsNeverEarlyAndCanBeSetAgainFromItsCall) {
  Mailbox<Instant> wakes(8);
  std::atomic<WakeTimer*> self = nullptr;
  WakeTimer timer(SystemClock(), [&] {
    const Instant now = SystemClock()->Now();
    if (wakes.TryPost(now)) self.load()->Set(now + absl::Milliseconds(1));
  });
  self = &timer;
  const Instant due = SystemClock()->Now() + absl::Milliseconds(2);
  timer.Set(due);
  const std::optional<Instant> first = wakes.Take(kPatience);
  ASSERT_TRUE(first.has_value());
  EXPECT_GE(*first, due);
  EXPECT_TRUE(wakes.Take(kPatience).has_value());
}

}  // namespace
}  // namespace shardline
