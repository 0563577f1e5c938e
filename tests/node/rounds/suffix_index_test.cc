#include "node/rounds/suffix_index.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::IsEmpty;

TEST(SuffixIndex, ProposesTheMostFrequentContinuation) {
  SuffixIndex index;
  for (const int32_t after : {3, 4, 3, 5, 3}) index.Accept(std::vector<int32_t>{1, 2, after});
  index.Accept(std::vector<int32_t>{1, 2});
  const std::vector<Draft> drafts = index.Propose(1);
  ASSERT_EQ(drafts.size(), 1U);
  EXPECT_EQ(drafts[0].token, 3);
}

TEST(SuffixIndex, WalksOnThroughItsOwnProposals) {
  SuffixIndex index;
  for (int i = 0; i < 4; ++i) index.Accept(std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  const std::vector<Draft> drafts = index.Propose(8);
  ASSERT_EQ(drafts.size(), 8U);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(drafts[i].token, static_cast<int32_t>(i % 6) + 1);
  EXPECT_GT(drafts[0].chance, 0.5F);
}

TEST(SuffixIndex, HasNoIdeaOfWhatItNeverSaw) {
  SuffixIndex index;
  EXPECT_THAT(index.Propose(4), IsEmpty());
  index.Accept(std::vector<int32_t>{1, 2, 3});
  EXPECT_THAT(index.Propose(4), IsEmpty());
}

TEST(SuffixIndex, StaysBoundedAndKeepsWhatIsFrequent) {
  SuffixIndex index(400);
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    index.Accept(std::vector<int32_t>{1, 2, 3, 4});
    std::vector<int32_t> noise;
    for (int j = 0; j < 10; ++j) noise.push_back(100 + static_cast<int32_t>(random() % 100000));
    index.Accept(noise);
    ASSERT_LE(index.contexts(), 400U);
  }
  index.Accept(std::vector<int32_t>{1, 2});
  const std::vector<Draft> drafts = index.Propose(2);
  ASSERT_EQ(drafts.size(), 2U);
  EXPECT_EQ(drafts[0].token, 3);
  EXPECT_EQ(drafts[1].token, 4);
}

}  // namespace
}  // namespace shardline
