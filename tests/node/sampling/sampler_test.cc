#include "node/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "xxhash.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::testing::Each;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

SampledToken DrawOne(const SamplingParams& params, std::vector<float> logits, uint64_t index = 0,
                     std::vector<int32_t> prompt = {}, std::vector<int32_t> generated = {}) {
  Sampler sampler(params, static_cast<int32_t>(logits.size()), prompt, generated);
  const auto token = sampler.Sample(logits, index);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? *token : SampledToken{};
}

// How often each token is drawn over `draws` indices.
std::vector<double> Frequencies(const SamplingParams& params, const std::vector<float>& logits,
                                int draws = 20000) {
  std::vector<double> counts(logits.size(), 0.0);
  Sampler sampler(params, static_cast<int32_t>(logits.size()), {}, {});
  for (int i = 0; i < draws; ++i) {
    std::vector<float> row = logits;
    const auto token = sampler.Sample(row, static_cast<uint64_t>(i));
    EXPECT_TRUE(token.ok());
    counts[static_cast<size_t>(token->token)] += 1.0 / draws;
  }
  return counts;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(x / temperature));
  for (double& x : p) x /= sum;
  return p;
}

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    // Five standard deviations of 20,000 draws, and a little.
    const double slack = 5.0 * std::sqrt(expected[i] * (1 - expected[i]) / 20000.0) + 1e-9;
    EXPECT_NEAR(actual[i], expected[i], slack) << "token " << i;
  }
}

const std::vector<float> kLogits = {0.5F, 2.0F, -1.0F, 1.0F, 0.0F, 1.9F};

TEST(Sampler, GreedyTakesTheLargest) { EXPECT_EQ(DrawOne({}, kLogits).token, 1); }

TEST(Sampler, GreedyTiesGoToTheLowestId) {
  std::vector<float> logits(1000, -1.0F);
  for (const int i : {900, 333, 334, 999}) logits[static_cast<size_t>(i)] = 3.0F;
  EXPECT_EQ(DrawOne({}, logits).token, 333);
}

TEST(Sampler, GreedyFindsTheLargestAtEveryPlace) {
  for (size_t size : {1U, 15U, 16U, 17U, 50U}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> logits(size, -2.0F);
      logits[at] = -1.0F;
      EXPECT_EQ(DrawOne({}, logits).token, static_cast<int32_t>(at));
    }
  }
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  for (const float bad : {kNan, -kNan, kInf}) {
    for (const float temperature : {0.0F, 1.0F}) {
      for (size_t at : {0U, 20U, 36U}) {
        std::vector<float> logits(37, 1.0F);
        logits[at] = bad;
        Sampler sampler({.temperature = temperature}, 37, {}, {});
        EXPECT_THAT(sampler.Sample(logits, 0), FailsWith(FailureKind::kNonFinite));
      }
    }
  }
}

TEST(Sampler, RefusesARowWithNothingToDraw) {
  std::vector<float> logits(5, -kInf);
  EXPECT_THAT(Sampler({}, 5, {}, {}).Sample(logits, 0), FailsWith(FailureKind::kNonFinite));
  SamplingParams bans_all;
  for (int i = 0; i < 2; ++i) bans_all.logit_bias.emplace_back(i, -kInf);
  std::vector<float> two = {1.0F, 2.0F};
  EXPECT_THAT(Sampler(bans_all, 2, {}, {}).Sample(two, 0), FailsWith(FailureKind::kNonFinite));
}

TEST(Sampler, NeverDrawsWhatIsRuledOut) {
  const std::vector<float> logits = {-kInf, 0.0F, -kInf, 0.0F};
  const std::vector<double> seen = Frequencies({.temperature = 1.0F, .seed = 3}, logits);
  ExpectNear(seen, {0.0, 0.5, 0.0, 0.5});
}

TEST(Sampler, DrawsWithTheProbabilityOfTheSoftmax) {
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    ExpectNear(Frequencies({.temperature = temperature, .seed = 11}, kLogits),
               Softmax(kLogits, temperature));
  }
}

TEST(Sampler, TopKKeepsTheBestAndLeavesTheirRatio) {
  const double a = std::exp(2.0);
  const double b = std::exp(1.9F);
  ExpectNear(Frequencies({.temperature = 1.0F, .top_k = 2, .seed = 5}, kLogits),
             {0, a / (a + b), 0, 0, 0, b / (a + b)});
}

TEST(Sampler, TopKTiesGoToTheLowestIds) {
  const std::vector<float> logits(100, 1.0F);
  const std::vector<double> seen =
      Frequencies({.temperature = 1.0F, .top_k = 2, .seed = 5}, logits);
  EXPECT_NEAR(seen[0], 0.5, 0.02);
  EXPECT_NEAR(seen[1], 0.5, 0.02);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // 0.5, 0.3, 0.2: to reach 0.6 takes two.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  ExpectNear(Frequencies({.temperature = 1.0F, .top_p = 0.6F, .seed = 7}, logits),
             {0.0, 0.625, 0.375});
  ExpectNear(Frequencies({.temperature = 1.0F, .top_p = 0.0F, .seed = 7}, logits), {0.0, 1.0, 0.0});
}

// The front of a large, flat vocabulary grows until it reaches top_p.
TEST(Sampler, TopPReachesFarIntoAFlatVocabulary) {
  const std::vector<float> logits(5000, 0.25F);
  const SamplingParams params{.temperature = 1.0F, .top_p = 0.5F, .seed = 1};
  int32_t largest = 0;
  Sampler sampler(params, 5000, {}, {});
  for (uint64_t i = 0; i < 500; ++i) {
    std::vector<float> row = logits;
    largest = std::max(largest, sampler.Sample(row, i)->token);
  }
  EXPECT_LT(largest, 2501);
  EXPECT_GT(largest, 2400);
}

TEST(Sampler, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  ExpectNear(Frequencies({.temperature = 1.0F, .min_p = 0.5F, .seed = 9}, logits),
             {0.0, 0.625, 0.375});
}

TEST(Sampler, TheDrawIsAPureFunctionOfSeedAndIndex) {
  const SamplingParams params{.temperature = 1.0F, .top_k = 4, .seed = 99};
  Sampler whole(params, 6, {}, {});
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < 64; ++i) {
    std::vector<float> row = kLogits;
    tokens.push_back(whole.Sample(row, i)->token);
  }
  Sampler restarted(params, 6, {}, tokens);
  for (uint64_t i = 32; i < 64; ++i) {
    std::vector<float> row = kLogits;
    EXPECT_EQ(restarted.Sample(row, i)->token, tokens[i]);
  }
  SamplingParams other = params;
  other.seed = 100;
  int same = 0;
  for (uint64_t i = 0; i < 64; ++i) same += DrawOne(other, kLogits, i).token == tokens[i] ? 1 : 0;
  EXPECT_LT(same, 50);
}

TEST(Sampler, BiasMovesALogit) {
  SamplingParams params;
  params.logit_bias = {{1, -10.0F}, {2, 4.0F}};
  EXPECT_EQ(DrawOne(params, kLogits).token, 2);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndOutput) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  EXPECT_EQ(DrawOne(params, {4.0F, 3.0F, 2.5F}, 0, {0}).token, 1);
  EXPECT_EQ(DrawOne(params, {4.0F, 3.0F, 2.5F}, 0, {0}, {1}).token, 2);
  EXPECT_EQ(DrawOne(params, {-1.0F, -1.5F}, 0, {0}).token, 1) << "a negative logit falls too";
}

TEST(Sampler, FrequencyPenaltyGrowsWithEachUse) {
  SamplingParams params;
  params.frequency_penalty = 0.6F;
  EXPECT_EQ(DrawOne(params, {3.0F, 2.0F}, 0, {0, 0, 0}).token, 0) << "the prompt does not count";
  EXPECT_EQ(DrawOne(params, {3.0F, 2.0F}, 0, {}, {0}).token, 0);
  EXPECT_EQ(DrawOne(params, {3.0F, 2.0F}, 0, {}, {0, 0}).token, 1);
}

TEST(Sampler, PresencePenaltyCountsOnce) {
  SamplingParams params;
  params.presence_penalty = 0.6F;
  EXPECT_EQ(DrawOne(params, {3.0F, 2.0F}, 0, {}, {0, 0, 0}).token, 0);
  params.presence_penalty = 1.1F;
  EXPECT_EQ(DrawOne(params, {3.0F, 2.0F}, 0, {}, {0}).token, 1);
}

TEST(Sampler, TakesItsOwnTokensIntoTheHistory) {
  SamplingParams params;
  params.presence_penalty = 1.1F;
  Sampler sampler(params, 2, {}, {});
  std::vector<float> row = {3.0F, 2.0F};
  EXPECT_EQ(sampler.Sample(row, 0)->token, 0);
  row = {3.0F, 2.0F};
  EXPECT_EQ(sampler.Sample(row, 1)->token, 1);
}

TEST(Sampler, LogprobsComeFromTheUnmodifiedLogits) {
  SamplingParams params;
  params.logprobs = true;
  params.top_logprobs = 2;
  params.logit_bias = {{2, 10.0F}};
  const std::vector<double> p = Softmax(kLogits, 1.0);
  const SampledToken token = DrawOne(params, kLogits);
  EXPECT_EQ(token.token, 2);
  EXPECT_NEAR(token.logprob, std::log(p[2]), 1e-5);
  ASSERT_EQ(token.top_logprobs.size(), 2U);
  EXPECT_EQ(token.top_logprobs[0].first, 1);
  EXPECT_NEAR(token.top_logprobs[0].second, std::log(p[1]), 1e-5);
  EXPECT_EQ(token.top_logprobs[1].first, 5);
}

TEST(Sampler, TheDigestIsOfTheRawRow) {
  SamplingParams params;
  params.logits_digest = true;
  params.logit_bias = {{2, 10.0F}};
  EXPECT_EQ(DrawOne(params, kLogits).logits_digest,
            XXH3_64bits(kLogits.data(), kLogits.size() * sizeof(float)));
}

// Against plain arithmetic over a sorted copy, for many random shapes of the distribution.
TEST(Sampler, AgreesWithThePlainestSamplerThereIs) {
  std::mt19937 random(4);
  for (int round = 0; round < 400; ++round) {
    const size_t vocab = 1 + random() % (round % 4 == 0 ? 3000 : 300);
    std::vector<float> logits(vocab);
    for (float& x : logits) x = static_cast<float>(random() % 64) / 8.0F;  // Many ties.
    SamplingParams params{.temperature = 0.25F + static_cast<float>(random() % 8) / 4.0F,
                          .top_k = static_cast<int32_t>(random() % 3 == 0 ? 0 : random() % 80),
                          .top_p = random() % 3 == 0 ? 1.0F : static_cast<float>(random() % 10) / 9,
                          .seed = random()};
    std::vector<int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    const bool sorts =
        (params.top_k > 0 && static_cast<size_t>(params.top_k) < vocab) || params.top_p < 1.0F;
    if (sorts) {
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
    }
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < vocab) {
      order.resize(static_cast<size_t>(params.top_k));
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    const auto weight = [&](int32_t token) {
      return std::exp((logits[static_cast<size_t>(token)] - max) / params.temperature);
    };
    double total = 0;
    for (const int32_t token : order) total += weight(token);
    double kept = 0;
    size_t count = 0;
    while (count < order.size() &&
           (count == 0 || params.top_p >= 1.0F || kept < params.top_p * total * (1 - 1e-12))) {
      kept += weight(order[count++]);
    }
    const double target = UniformAt(params.seed, 17) * kept;
    double cumulative = 0;
    int32_t expected = order[count - 1];
    for (size_t i = 0; i < count; ++i) {
      cumulative += weight(order[i]);
      if (cumulative > target) {
        expected = order[i];
        break;
      }
    }
    EXPECT_EQ(DrawOne(params, logits, 17).token, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace shardline
