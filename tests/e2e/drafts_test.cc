// What is guessed moves speed and no bit: tokens, log-probabilities and digests of all logits are
// those of one token a lap.

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

constexpr char kText[] =
    "The ferry leaves at seven in the morning and at four in the afternoon. Tickets are sold in "
    "the red hut beside the pier, and children under twelve travel for free.\n";

absl::Status Load(Cluster& cluster) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_shards(static_cast<uint32_t>(cluster.node_count()));
  request.set_context_tokens_max(512);
  request.set_sessions_max(4);
  return cluster.LoadModel(request);
}

v1::GenerateRequest Ask(const std::string& prompt, bool is_greedy) {
  v1::GenerateRequest request = Greedy(prompt, 48);
  if (is_greedy) return request;
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.8F);
  sampling.set_top_p(0.95F);
  sampling.set_seed(11);
  sampling.set_repetition_penalty(1.05F);
  return request;
}

TEST(Drafts, ChangeNoTokenAndNoLogit) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(Load(cluster), IsOk());
  const std::string copy = std::string(kText) + kText + kText;
  uint32_t accepted = 0;
  uint32_t rejected = 0;
  for (const std::string& prompt :
       {copy, std::string("Question: what do bees do in winter?\nAnswer:")}) {
    for (const bool is_greedy : {true, false}) {
      v1::GenerateRequest request = Ask(prompt, is_greedy);
      const Answer drafted = cluster.Generate(request);
      request.set_no_drafts(true);
      const Answer plain = cluster.Generate(request);
      ASSERT_THAT(drafted.status, IsOk());
      ASSERT_THAT(plain.status, IsOk());
      EXPECT_EQ(drafted.tokens, plain.tokens);
      EXPECT_EQ(drafted.digests, plain.digests);
      EXPECT_EQ(drafted.tokens.size(), 48U);
      EXPECT_EQ(plain.end->timings().drafted_tokens(), 0U);
      const v1::RunTimings& timings = drafted.end->timings();
      EXPECT_EQ(timings.laps() + timings.accepted_tokens(), 47U) << "a right guess saves a lap";
      accepted += timings.accepted_tokens();
      rejected += timings.drafted_tokens() - timings.accepted_tokens();
    }
  }
  EXPECT_GT(accepted, 20U);
  EXPECT_GT(rejected, 0U);
}

TEST(Drafts, CanBeTurnedOff) {
  Cluster cluster({.nodes = 1, .node_arguments = {"--drafts", "off"}});
  ASSERT_THAT(Load(cluster), IsOk());
  const Answer answer = cluster.Generate(Ask(std::string(kText) + kText, true));
  ASSERT_THAT(answer.status, IsOk());
  EXPECT_EQ(answer.end->timings().drafted_tokens(), 0U);
  EXPECT_EQ(answer.end->timings().laps(), 47U);
}

}  // namespace
}  // namespace shardline::testing
