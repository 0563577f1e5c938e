#include "node/courier.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace shardline {
namespace {

TEST(Courier, WhoPostsIsNotHeldUpByABusyStrand) {
  Strand strand(16);
  Courier courier(&strand, 16);
  absl::Notification entered;
  absl::Notification leave;
  ASSERT_TRUE(courier.Post([&] {
    entered.Notify();
    leave.WaitForNotification();
  }));
  entered.WaitForNotification();
  // The strand is busy, and this thread is not its runner.
  std::vector<int> seen;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(courier.Post([&seen, i] { seen.push_back(i); }));
  leave.Notify();
  absl::Notification done;
  ASSERT_TRUE(courier.Post([&] { done.Notify(); }));
  done.WaitForNotification();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(Courier, TooManyThatWaitAreRefused) {
  Strand strand(16);
  Courier courier(&strand, 2);
  absl::Notification entered;
  absl::Notification leave;
  ASSERT_TRUE(courier.Post([&] {
    entered.Notify();
    leave.WaitForNotification();
  }));
  entered.WaitForNotification();
  EXPECT_TRUE(courier.Post([] {}));
  EXPECT_TRUE(courier.Post([] {}));
  EXPECT_FALSE(courier.Post([] {}));
  leave.Notify();
}

TEST(Courier, WhatWaitsIsDeliveredBeforeItGoes) {
  Strand strand(16);
  int delivered = 0;
  {
    Courier courier(&strand, 16);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(courier.Post([&] { ++delivered; }));
  }
  strand.Close();
  EXPECT_EQ(delivered, 10);
}

}  // namespace
}  // namespace shardline
