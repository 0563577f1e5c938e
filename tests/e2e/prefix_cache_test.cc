// Prompts that begin alike share the KV of what they begin with, and nothing else shows: tokens,
// logits and log-probabilities are those of a prompt that is computed from its first token on.

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kContext = 512;  // 32 pages in all, with one session.

absl::Status Load(Cluster& cluster, uint32_t shards, uint32_t replicas = 1,
                  uint32_t context = kContext) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_shards(shards);
  request.set_replicas(replicas);
  request.set_context_tokens_max(context);
  request.set_sessions_max(1);
  return cluster.LoadModel(request);
}

// The first `count` tokens of a text of its own.
std::vector<int32_t> Text(Cluster& cluster, const std::string& topic, size_t count) {
  std::string text;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&text, "Line ", i, " is about ", topic, ".\n");
  const v1::TokenIds ids = cluster.Tokenize(text);
  std::vector<int32_t> tokens(ids.ids().begin(), ids.ids().end());
  tokens.resize(count);
  return tokens;
}

v1::GenerateRequest Ask(const std::vector<int32_t>& prompt, uint32_t count, bool greedy = true) {
  v1::GenerateRequest request = Greedy("", count);
  request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  if (greedy) return request;
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.8F);
  sampling.set_seed(11);
  sampling.set_repetition_penalty(1.1F);
  sampling.set_logprobs(true);
  sampling.set_top_logprobs(3);
  return request;
}

struct Told {
  absl::Status status;
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;  // With log-probabilities and digests, as they came.
  uint32_t cached_tokens = 0;
};

Told Generate(Cluster& cluster, const v1::GenerateRequest& request) {
  Told told;
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Minutes(2)));
  auto reader = cluster.inference().Generate(&context, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    if (event.has_token()) {
      told.ids.push_back(event.token().token().token());
      told.tokens.push_back(event.token().token().SerializeAsString());
    }
    if (event.has_end()) told.cached_tokens = event.end().cached_tokens();
  }
  told.status = FromGrpcStatus(reader->Finish());
  return told;
}

// What the request is answered with when nothing is shared.
Told GenerateCold(Cluster& cluster, v1::GenerateRequest request) {
  request.set_no_prefix_cache(true);
  const Told told = Generate(cluster, request);
  EXPECT_THAT(told.status, IsOk());
  EXPECT_EQ(told.cached_tokens, 0U);
  return told;
}

void ExpectSame(const Told& told, const Told& cold, uint32_t cached_tokens) {
  EXPECT_THAT(told.status, IsOk());
  EXPECT_EQ(told.cached_tokens, cached_tokens);
  EXPECT_EQ(told.ids, cold.ids);
  EXPECT_EQ(told.tokens, cold.tokens);
}

class PrefixCacheTest : public ::testing::TestWithParam<int> {};

TEST_P(PrefixCacheTest, AHitAnswersAsAMissDoes) {
  Cluster cluster({.nodes = GetParam()});
  ASSERT_THAT(Load(cluster, static_cast<uint32_t>(GetParam())), IsOk());
  const std::vector<int32_t> prompt = Text(cluster, "a river", 100);
  std::vector<int32_t> other = Text(cluster, "a river", 60);
  for (size_t i = 50; i < other.size(); ++i) other[i] = prompt[i - 50];
  for (const bool greedy : {true, false}) {
    SCOPED_TRACE(greedy ? "greedy" : "temperature 0.8");
    const v1::GenerateRequest request = Ask(prompt, 12, greedy);
    const Told cold = GenerateCold(cluster, request);
    ExpectSame(Generate(cluster, request), cold, greedy ? 0 : 96);
    ExpectSame(Generate(cluster, request), cold, 96);

    const v1::GenerateRequest partial = Ask(other, 12, greedy);
    ExpectSame(Generate(cluster, partial), GenerateCold(cluster, partial), greedy ? 48 : 48);

    // Whole pages, and one token is always computed.
    const v1::GenerateRequest whole = Ask({prompt.begin(), prompt.begin() + 96}, 2, greedy);
    ExpectSame(Generate(cluster, whole), GenerateCold(cluster, whole), 80);
  }
  // A stranger that needs nearly every page, and the same again.
  const v1::GenerateRequest request = Ask(prompt, 12);
  const Told cold = GenerateCold(cluster, request);
  const v1::GenerateRequest stranger = Ask(Text(cluster, "the sea", 490), 8);
  ExpectSame(Generate(cluster, stranger), GenerateCold(cluster, stranger), 0);
  const Told evicted = Generate(cluster, request);
  EXPECT_LT(evicted.cached_tokens, 96U);
  ExpectSame(evicted, cold, evicted.cached_tokens);
  ExpectSame(Generate(cluster, request), cold, 96);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_P(PrefixCacheTest, ASecondTurnFindsWhatTheFirstHasSaid) {
  Cluster cluster({.nodes = GetParam()});
  ASSERT_THAT(Load(cluster, static_cast<uint32_t>(GetParam())), IsOk());
  std::vector<int32_t> text = Text(cluster, "a bridge", 32);
  const Told first = Generate(cluster, Ask(text, 40));
  ASSERT_THAT(first.status, IsOk());
  text.insert(text.end(), first.ids.begin(), first.ids.end());
  const std::vector<int32_t> question = Text(cluster, "a question", 20);
  text.insert(text.end(), question.begin(), question.end());
  const v1::GenerateRequest second = Ask(text, 16);
  // Of 72 tokens the last was never computed; 4 pages are whole.
  ExpectSame(Generate(cluster, second), GenerateCold(cluster, second), 64);
}

TEST_P(PrefixCacheTest, TenantsShareNoPage) {
  Cluster cluster({.nodes = GetParam()});
  ASSERT_THAT(Load(cluster, static_cast<uint32_t>(GetParam())), IsOk());
  v1::GenerateRequest request = Ask(Text(cluster, "a river", 100), 4);
  const Told cold = GenerateCold(cluster, request);
  request.set_tenant("red");
  ExpectSame(Generate(cluster, request), cold, 0);
  request.set_tenant("blue");
  ExpectSame(Generate(cluster, request), cold, 0);
  request.set_tenant("");
  ExpectSame(Generate(cluster, request), cold, 0);
  request.set_tenant("red");
  ExpectSame(Generate(cluster, request), cold, 96);
  request.set_tenant(std::string(300, 'x'));
  EXPECT_THAT(Generate(cluster, request).status, FailsWith(FailureKind::kInvalidRequest));
}

INSTANTIATE_TEST_SUITE_P(Nodes, PrefixCacheTest, ::testing::Values(1, 3));

TEST(PrefixCache, AFailoverBeginsWhereTheNewRingEnds) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(Load(cluster, 2, 2), IsOk());
  const v1::GenerateRequest request = Ask(Text(cluster, "a river", 100), 40, false);
  const Told cold = GenerateCold(cluster, request);
  v1::GenerateStarted started;
  const Answer disturbed = cluster.Generate(
      request,
      [&](int count) {
        if (count != 20) return;
        cluster.node(started.route(1).node_id().back() - 'a').Signal(SIGKILL);
      },
      [&](const v1::GenerateStarted& event) { started = event; });
  ASSERT_THAT(disturbed.status, IsOk()) << cluster.Logs();
  EXPECT_EQ(disturbed.tokens, cold.ids);
  EXPECT_GE(disturbed.restarts.size(), 1U);
  // The head is the same or its replica; whatever is cached where, the shortest stage decides.
  for (int i = 0; i < 3; ++i) {
    const Told again = Generate(cluster, request);
    ExpectSame(again, cold, again.cached_tokens);
    if (i == 2) EXPECT_EQ(again.cached_tokens, 96U);
  }
  EXPECT_TRUE(cluster.Until(absl::Seconds(10), AllPagesFree));
}

// 32 requests begin with the same 59 of 96 pages: those without room wait their turn, and all end.
TEST(PrefixCache, AllWhoShareMostOfThePoolFinish) {
  constexpr size_t kRequests = 32;
  for (const bool warm : {true, false}) {
    SCOPED_TRACE(warm ? "warm" : "cold");
    Cluster cluster({.nodes = 3});
    ASSERT_THAT(Load(cluster, 3, 1, 96 * kPageTokens), IsOk());
    std::vector<int32_t> prompt = Text(cluster, "a river", 59 * kPageTokens + 3);
    const Told cold = GenerateCold(cluster, Ask(prompt, 12));
    if (warm) ExpectSame(Generate(cluster, Ask(prompt, 12)), cold, 0);
    v1::GenerateRequest request = Ask(prompt, 12);
    request.set_deadline_ms(120'000);
    std::vector<Told> told(kRequests);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < kRequests; ++i) {
      clients.emplace_back([&, i] { told[i] = Generate(cluster, request); });
    }
    for (std::thread& client : clients) client.join();
    for (const Told& one : told) {
      ASSERT_THAT(one.status, IsOk());
      EXPECT_EQ(one.tokens, cold.tokens);
    }
    EXPECT_TRUE(cluster.Until(absl::Seconds(10), AllPagesFree)) << cluster.Logs();
  }
}

TEST(PrefixCache, CanBeTurnedOffAndIsTold) {
  {
    Cluster cluster({.nodes = 1, .coordinator_arguments = {"--prefix-cache", "off"}});
    ASSERT_THAT(Load(cluster, 1), IsOk());
    const v1::GenerateRequest request = Ask(Text(cluster, "a river", 100), 4);
    const Told cold = GenerateCold(cluster, request);
    for (int i = 0; i < 2; ++i) ExpectSame(Generate(cluster, request), cold, 0);
  }
  Cluster cluster({.nodes = 1});
  ASSERT_THAT(Load(cluster, 1), IsOk());
  std::string prompt = "A story in one paragraph, with a river, a bridge, an old boat and a dog.";
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> arguments = {"generate",     "smollm2", prompt,
                                          "--max-tokens", "4",       "--ignore-eos"};
    if (i == 2) arguments.push_back("--no-prefix-cache");
    const CommandResult said = cluster.Shardctl(arguments);
    ASSERT_EQ(said.exit_code, 0) << said.err;
    const bool told = said.err.find("16 of them cached") != std::string::npos;
    EXPECT_EQ(told, i == 1) << said.err;
  }
}

}  // namespace
}  // namespace shardline::testing
