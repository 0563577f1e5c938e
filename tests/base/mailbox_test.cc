#include "base/mailbox.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(MailboxTest, AFullMailboxRefusesAtOnceAndLeavesTheItem) {
  Mailbox<std::unique_ptr<int>> mailbox(1);
  ASSERT_TRUE(mailbox.TryPost(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(mailbox.TryPost(std::move(second)));
  EXPECT_NE(second, nullptr);
}

TEST(MailboxTest, CloseLetsTheTakerDrainThenSeeTheEnd) {
  Mailbox<int> mailbox(4);
  ASSERT_TRUE(mailbox.TryPost(1));
  mailbox.Close();
  EXPECT_FALSE(mailbox.TryPost(2));
  EXPECT_EQ(mailbox.Take(), 1);
  EXPECT_EQ(mailbox.Take(), std::nullopt);
}

TEST(MailboxTest, TakeGivesUpAfterItsTimeout) {
  Mailbox<int> mailbox(1);
  EXPECT_EQ(mailbox.Take(absl::ZeroDuration()), std::nullopt);
}

TEST(MailboxTest, EveryItemArrivesOnceUnderContention) {
  constexpr int kPosters = 3;
  constexpr int kItems = 2000;
  Mailbox<int> mailbox(8);
  std::vector<std::thread> posters;
  for (int p = 0; p < kPosters; ++p) {
    posters.emplace_back([&mailbox, p] {
      for (int i = 0; i < kItems; ++i) {
        while (!mailbox.TryPost(p * kItems + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> seen(kPosters * kItems, 0);
  for (int i = 0; i < kPosters * kItems; ++i) ++seen[*mailbox.Take()];
  for (std::thread& poster : posters) poster.join();
  for (const int count : seen) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace shardline
