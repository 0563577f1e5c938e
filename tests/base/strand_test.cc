#include "base/strand.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(StrandTest, AnIdleStrandRunsTheTaskOnThePoster) {
  Strand strand(4);
  std::thread::id ran_on;
  ASSERT_TRUE(strand.TryPost([&] { ran_on = std::this_thread::get_id(); }));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(StrandTest, ATaskPostedByATaskRunsAfterIt) {
  Strand strand(4);
  std::vector<int> order;
  ASSERT_TRUE(strand.TryPost([&] {
    ASSERT_TRUE(strand.TryPost([&] { order.push_back(2); }));
    order.push_back(1);
  }));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(StrandTest, AFullStrandRefusesButMustNotLoseEventsStillEnter) {
  Strand strand(1);
  int ran = 0;
  ASSERT_TRUE(strand.TryPost([&] {
    EXPECT_TRUE(strand.TryPost([&] { ++ran; }));
    EXPECT_FALSE(strand.TryPost([&] { ran += 100; }));
    EXPECT_TRUE(strand.Post([&] { ++ran; }));
  }));
  EXPECT_EQ(ran, 2);
}

TEST(StrandTest, TasksNeverOverlapAndNoneIsLost) {
  Strand strand(1 << 20);
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  int unguarded = 0;  // Only the strand protects it: TSan watches.
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) ASSERT_TRUE(strand.TryPost([&] { ++unguarded; }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  strand.Close();
  EXPECT_EQ(unguarded, kThreads * kTasks);
}

TEST(StrandTest, CloseWaitsForTheRunningTaskAndRefusesLaterOnes) {
  Strand strand(4);
  absl::Notification started;
  absl::Notification release;
  std::atomic<bool> done = false;
  std::thread runner([&] {
    ASSERT_TRUE(strand.TryPost([&] {
      started.Notify();
      release.WaitForNotification();
      done = true;
    }));
  });
  started.WaitForNotification();
  std::thread closer([&] { strand.Close(); });
  release.Notify();
  closer.join();
  EXPECT_TRUE(done);
  EXPECT_FALSE(strand.Post([] {}));
  runner.join();
}

TEST(StrandTest, ATaskMayCloseItsOwnStrand) {
  Strand strand(4);
  ASSERT_TRUE(strand.TryPost([&] { strand.Close(); }));
  EXPECT_FALSE(strand.TryPost([] {}));
}

}  // namespace
}  // namespace shardline
