#include "node/rounds/prompt_lookup.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> TokensOf(const std::vector<Draft>& drafts) {
  std::vector<int32_t> tokens;
  for (const Draft& draft : drafts) tokens.push_back(draft.token);
  return tokens;
}

std::vector<int32_t> After(const std::vector<int32_t>& text, size_t count) {
  PromptLookup lookup;
  lookup.Accept(text);
  return TokensOf(lookup.Propose(count));
}

TEST(PromptLookup, ProposesWhatFollowedTheSameWords) {
  EXPECT_THAT(After({1, 2, 3, 4, 5, 6, 9, 2, 3, 4}, 3), ElementsAre(5, 6, 9));
  EXPECT_THAT(After({1, 2, 3}, 3), IsEmpty());
  EXPECT_THAT(After({}, 3), IsEmpty());
  EXPECT_THAT(After({1, 2, 1, 2}, 0), IsEmpty());
}

TEST(PromptLookup, PrefersTheLongestMatchAndThenTheLatest) {
  EXPECT_THAT(After({1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), ElementsAre(7));
  EXPECT_THAT(After({9, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), ElementsAre(8));
}

TEST(PromptLookup, FollowsARepetitionIntoItself) {
  EXPECT_THAT(After({1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
}

TEST(PromptLookup, BelievesLongMatchesMore) {
  PromptLookup lookup;
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 40; ++i) text.push_back(i);
  lookup.Accept(text);
  lookup.Accept(std::vector<int32_t>{3, 4});
  const float brief = lookup.Propose(1)[0].chance;
  lookup.Accept(std::vector<int32_t>{5, 6, 7, 8, 9, 10});
  const float sure = lookup.Propose(1)[0].chance;
  EXPECT_LT(brief, 0.5F);
  EXPECT_GT(sure, 0.7F);
}

// However the text is cut into calls, and however often the tables grew.
TEST(PromptLookup, DependsOnTheTextAlone) {
  std::mt19937 random(3);
  std::vector<int32_t> text;
  for (int i = 0; i < 5000; ++i) text.push_back(static_cast<int32_t>(random() % 12));
  PromptLookup whole;
  whole.Accept(text);
  PromptLookup pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t count = std::min(text.size() - at, size_t{1} + random() % 70);
    pieces.Accept(std::span(text).subspan(at, count));
    at += count;
  }
  EXPECT_EQ(TokensOf(whole.Propose(15)), TokensOf(pieces.Propose(15)));
}

TEST(PromptLookup, TakesTextsBeyondItsBound) {
  PromptLookup lookup;
  std::vector<int32_t> text(kLookupTokensMax + 100, 5);
  text[10] = 6;
  lookup.Accept(text);
  EXPECT_THAT(TokensOf(lookup.Propose(2)), ElementsAre(5, 5));
}

}  // namespace
}  // namespace shardline
