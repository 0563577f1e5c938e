// Drafts and policies change how many tokens come at once, and nothing about which.

#include <algorithm>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/sampling/sampler.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 64;
constexpr float kInf = std::numeric_limits<float>::infinity();

// A model that is a table: the logits after `token` at place `index`.
std::vector<float> LogitsAfter(uint32_t seed, int32_t token, uint64_t index) {
  std::mt19937 random(seed * 1000003U + static_cast<uint32_t>(token) * 977U +
                      static_cast<uint32_t>(index));
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = static_cast<float>(random() % 4096) / 512.0F;
  return logits;
}

void ExpectSame(const SampledToken& a, const SampledToken& b) {
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(a.logprob, b.logprob);
  EXPECT_EQ(a.top_logprobs, b.top_logprobs);
  EXPECT_EQ(a.logits_digest, b.logits_digest);
}

// One token a step.
std::vector<SampledToken> Plain(const SamplingParams& params, uint32_t seed, size_t count) {
  Sampler sampler(params, kVocab, std::vector<int32_t>{1, 2, 3}, {});
  std::vector<SampledToken> tokens;
  int32_t last = 3;
  while (tokens.size() < count) {
    std::vector<float> logits = LogitsAfter(seed, last, tokens.size());
    tokens.push_back(*sampler.Sample(logits, tokens.size()));
    last = tokens.back().token;
  }
  return tokens;
}

// The same with `draft(index)` as the guess at token `index`, up to 5 of them a row.
template <typename DraftAt>
std::vector<SampledToken> Drafted(const SamplingParams& params, uint32_t seed, size_t count,
                                  DraftAt draft) {
  Sampler sampler(params, kVocab, std::vector<int32_t>{1, 2, 3}, {});
  std::vector<SampledToken> tokens;
  int32_t last = 3;
  while (tokens.size() < count) {
    std::vector<int32_t> drafts;
    while (drafts.size() < 5 && tokens.size() + drafts.size() + 1 < count) {
      drafts.push_back(draft(tokens.size() + drafts.size()));
    }
    std::vector<float> rows;
    for (size_t row = 0; row <= drafts.size(); ++row) {
      const std::vector<float> logits =
          LogitsAfter(seed, row == 0 ? last : drafts[row - 1], tokens.size() + row);
      rows.insert(rows.end(), logits.begin(), logits.end());
    }
    DrawnTokens drawn = sampler.SampleInTurn(rows, drafts, tokens.size());
    EXPECT_THAT(drawn.status, IsOk());
    for (SampledToken& token : drawn.tokens) tokens.push_back(std::move(token));
    last = tokens.back().token;
  }
  return tokens;
}

TEST(DrawsInTurn, AreTheDrawsOfAsManyStepsWhateverTheDrafts) {
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SamplingParams params{.temperature = seed % 2 == 0 ? 0.0F : 0.8F,
                          .top_k = seed % 3 == 0 ? 20 : 0,
                          .top_p = seed % 5 == 0 ? 0.9F : 1.0F,
                          .repetition_penalty = seed % 4 == 0 ? 1.3F : 1.0F,
                          .presence_penalty = seed % 7 == 0 ? 0.5F : 0.0F,
                          .seed = seed,
                          .logprobs = true,
                          .top_logprobs = 3,
                          .logits_digest = true};
    const std::vector<SampledToken> want = Plain(params, seed, 40);
    const auto oracle = [&](size_t index) { return want[index].token; };
    const auto never = [&](size_t index) { return (want[index].token + 1) % kVocab; };
    const auto often = [&](size_t index) {
      return random() % 4 == 0 ? static_cast<int32_t>(random() % kVocab) : want[index].token;
    };
    const auto check = [&](const std::vector<SampledToken>& got) {
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) ExpectSame(got[i], want[i]);
    };
    check(Drafted(params, seed, 40, oracle));
    check(Drafted(params, seed, 40, never));
    check(Drafted(params, seed, 40, often));
  }
}

TEST(DrawsInTurn, StopAtTheFirstWrongDraft) {
  Sampler sampler({}, 3, {}, {});
  std::vector<float> rows = {0, 1, 0, /**/ 0, 0, 1, /**/ 1, 0, 0};
  const DrawnTokens right = sampler.SampleInTurn(rows, std::vector<int32_t>{1, 2}, 0);
  ASSERT_EQ(right.tokens.size(), 3U);
  EXPECT_EQ(right.tokens[2].token, 0);
  rows = {0, 1, 0, /**/ 0, 0, 1, /**/ 1, 0, 0};
  const DrawnTokens wrong = sampler.SampleInTurn(rows, std::vector<int32_t>{1, 0}, 0);
  ASSERT_EQ(wrong.tokens.size(), 2U);
  EXPECT_EQ(wrong.tokens[1].token, 2) << "the token drawn in the wrong draft's place counts";
}

TEST(DrawsInTurn, KeepTheTokensBeforeARowThatFails) {
  Sampler sampler({}, 2, {}, {});
  std::vector<float> rows = {0, 1, /**/ 1, kInf, /**/ 0, 1};
  const DrawnTokens drawn = sampler.SampleInTurn(rows, std::vector<int32_t>{1, 1}, 0);
  EXPECT_THAT(drawn.status, FailsWith(FailureKind::kNonFinite));
  ASSERT_EQ(drawn.tokens.size(), 1U);
  // Behind a wrong draft nobody looks at it.
  rows = {0, 1, /**/ 1, kInf, /**/ 0, 1};
  EXPECT_THAT(sampler.SampleInTurn(rows, std::vector<int32_t>{0, 1}, 0).status, IsOk());
}

// Lets each token follow only its predecessor, and ends behind `last`.
class Counting : public RowPolicy {
 public:
  explicit Counting(int32_t last) : last_(last) {}

  absl::Status Apply(std::span<float> logits) override {
    if (fails_) return absl::InternalError("the grammar has no such state");
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<int32_t>(i) != seen_ + 1) logits[i] = -kInf;
    }
    return absl::OkStatus();
  }
  void Accept(int32_t token) override {
    EXPECT_EQ(token, seen_ + 1) << "a token that was not drawn";
    seen_ = token;
  }
  bool finished() const override { return seen_ == last_; }

  bool fails_ = false;

 private:
  const int32_t last_;
  int32_t seen_ = -1;
};

TEST(RowPolicy, SeesEachDrawnTokenAndNoRejectedDraft) {
  Sampler sampler({.temperature = 0.8F, .seed = 1}, 8, {}, std::vector<int32_t>{0, 1},
                  std::make_unique<Counting>(7));
  std::vector<float> rows(4 * 8, 1.0F);
  const DrawnTokens drawn = sampler.SampleInTurn(rows, std::vector<int32_t>{2, 3, 6}, 2);
  EXPECT_THAT(drawn.status, IsOk());
  ASSERT_EQ(drawn.tokens.size(), 3U);
  EXPECT_EQ(drawn.tokens[2].token, 4);
  EXPECT_FALSE(drawn.finished);
}

TEST(RowPolicy, EndsTheDrawsWhereNothingMayFollow) {
  Sampler sampler({}, 8, {}, std::vector<int32_t>{0, 1}, std::make_unique<Counting>(3));
  std::vector<float> rows(4 * 8, 1.0F);
  const DrawnTokens drawn = sampler.SampleInTurn(rows, std::vector<int32_t>{2, 3, 4}, 2);
  EXPECT_THAT(drawn.status, IsOk());
  EXPECT_EQ(drawn.tokens.size(), 2U);
  EXPECT_TRUE(drawn.finished);
}

TEST(RowPolicy, ThatRulesOutEverythingFailsTheRequest) {
  Sampler sampler({.temperature = 1.0F}, 2, {}, std::vector<int32_t>{0, 1},
                  std::make_unique<Counting>(9));
  std::vector<float> row = {1.0F, 2.0F};
  const absl::Status status = sampler.Sample(row, 2).status();
  EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rules out every token"));
}

TEST(RowPolicy, ThatFailsIsNamed) {
  auto policy = std::make_unique<Counting>(9);
  policy->fails_ = true;
  Sampler sampler({}, 2, {}, {}, std::move(policy));
  std::vector<float> row = {1.0F, 2.0F};
  const absl::Status status = sampler.Sample(row, 0).status();
  EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such state"));
}

TEST(RowPolicy, DoesNotShowInLogprobsAndDigest) {
  const SamplingParams params{.logprobs = true, .logits_digest = true};
  std::vector<float> row = {3.0F, 1.0F};
  Sampler plain(params, 2, {}, {});
  const SampledToken want = *plain.Sample(row, 0);
  std::vector<float> same = {3.0F, 1.0F};
  Sampler bound(params, 2, {}, {}, std::make_unique<Counting>(9));
  ExpectSame(*bound.Sample(same, 0), want);
}

}  // namespace
}  // namespace shardline
