// What is computed in rounds together answers as each alone: tokens, digests of the logits and
// logprobs, bit for bit, whatever was batched, cached, drafted, cut in pieces or lost meanwhile.

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/same_answer.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;

constexpr uint32_t kContext = 512;
constexpr int kSharedTokens = 90;  // Of every fourth prompt: five pages, and some of a sixth.

v1::LoadModelRequest Load(uint32_t shards, uint32_t sessions_max, uint32_t replicas = 1) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_shards(shards);
  request.set_context_tokens_max(kContext);
  request.set_sessions_max(sessions_max);
  request.set_replicas(replicas);
  return request;
}

// Most prompts are short, some long; a few are the same, or begin alike.
int LengthOf(int i) {
  static constexpr int kLengths[] = {1, 3, 7, 12, 15, 16, 17, 18, 24, 31, 33, 48, 65, 97, 170, 400};
  return kLengths[i % std::size(kLengths)] / (i % 16 == 15 && i != 15 ? 2 : 1);
}

std::vector<v1::GenerateRequest> Mix(int count) {
  std::mt19937 shared(1);
  std::vector<int32_t> common;
  for (int i = 0; i < kSharedTokens; ++i) common.push_back(static_cast<int32_t>(shared() % 20000));
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    std::mt19937 own(static_cast<uint32_t>(i % 40 + 100));  // The last ones repeat the first.
    v1::GenerateRequest request = Greedy("", static_cast<uint32_t>(6 + i % 7));
    for (int t = 0; t < LengthOf(i % 40); ++t) {
      const bool is_common = i % 4 == 1 && t < kSharedTokens;
      const auto id = static_cast<int32_t>(1000 + own() % 20000);
      request.mutable_tokens()->add_ids(is_common ? common[static_cast<size_t>(t)] + 1000 : id);
    }
    v1::Sampling& sampling = *request.mutable_sampling();
    if (i % 2 == 1) {
      sampling.set_temperature(0.8F);
      sampling.set_seed(static_cast<uint64_t>(i));
    }
    if (i % 3 == 1) sampling.set_top_p(0.9F);
    if (i % 5 == 2) sampling.set_repetition_penalty(1.2F);
    if (i % 5 == 3) sampling.set_frequency_penalty(0.5F);
    sampling.set_logprobs(i % 3 == 0);
    request.set_tenant(absl::StrCat("tenant-", i % 3));
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Answer> Together(Cluster& cluster, const std::vector<v1::GenerateRequest>& requests,
                             const std::function<void(int count)>& on_token = {}) {
  std::vector<Answer> answers(requests.size());
  std::atomic<int> tokens = 0;
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      answers[i] = cluster.Generate(requests[i], [&](int) {
        const int count = ++tokens;
        if (on_token) on_token(count);
      });
    });
  }
  for (std::thread& client : clients) client.join();
  return answers;
}

// Ready for the test's sessions alone: those that prove the routes are over.
absl::Status LoadInto(Cluster& cluster, const v1::LoadModelRequest& request) {
  const absl::Status status = cluster.LoadModel(request);
  if (!status.ok()) return status;
  const bool calm = cluster.UntilAllProven(absl::Seconds(10)) &&
                    cluster.Until(absl::Seconds(10),
                                  [](Cluster& c) { return c.Status().sessions_running() == 0; });
  return calm ? absl::OkStatus() : absl::DeadlineExceededError("probes go on");
}

class RoundsTest : public ::testing::Test {
 protected:
  // Each request by itself, with nothing cached and nothing guessed.
  static void SetUpTestSuite() {
    Cluster cluster({.nodes = 1});
    ASSERT_THAT(LoadInto(cluster, Load(1, 1)), IsOk());
    for (v1::GenerateRequest request : Mix(kCount)) {
      request.set_no_drafts(true);
      request.set_no_prefix_cache(true);
      alone_.push_back(cluster.Generate(request));
      ASSERT_THAT(alone_.back().status, IsOk());
      ASSERT_EQ(alone_.back().tokens.size(), request.new_tokens_max());
    }
  }
  static void TearDownTestSuite() { alone_.clear(); }

  static void ExpectAllSame(const std::vector<Answer>& answers) {
    for (size_t i = 0; i < answers.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("request ", i));
      ASSERT_THAT(answers[i].status, IsOk());
      ExpectSame(answers[i], alone_[i]);
    }
  }

  static constexpr int kCount = 64;
  static std::vector<Answer> alone_;
};

std::vector<Answer> RoundsTest::alone_;

TEST_F(RoundsTest, SixtyFourPromptsAtOnceOnOneNodeAnswerAsEachAlone) {
  Cluster cluster({.nodes = 1, .threads = 2});
  ASSERT_THAT(LoadInto(cluster, Load(1, 16)), IsOk());
  ExpectAllSame(Together(cluster, Mix(kCount)));
  // And again, with what the first time has left in the caches.
  ExpectAllSame(Together(cluster, Mix(20)));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(RoundsTest, SixtyFourPromptsAtOnceOverThreeNodesAnswerAsEachAlone) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(LoadInto(cluster, Load(3, 16)), IsOk());
  ExpectAllSame(Together(cluster, Mix(kCount)));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(RoundsTest, ANodeThatIsKilledAmongSixtyFourPromptsDoesNotShow) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(LoadInto(cluster, Load(2, 16, 2)), IsOk());
  const std::vector<Answer> answers = Together(cluster, Mix(kCount), [&](int count) {
    if (count == 60) cluster.node(3).Signal(SIGKILL);
  });
  ExpectAllSame(answers);
  EXPECT_TRUE(std::any_of(answers.begin(), answers.end(),
                          [](const Answer& answer) { return !answer.restarts.empty(); }));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(RoundsTest, WhateverTheSizeOfAPieceAnswersAreTheSame) {
  constexpr int kLong = 15;  // The request with the longest prompt.
  for (const int chunk : {16, 17, 64, 512}) {
    SCOPED_TRACE(absl::StrCat("pieces of ", chunk));
    Cluster cluster({.nodes = 2, .coordinator_arguments = {"--chunk-tokens", absl::StrCat(chunk)}});
    ASSERT_THAT(LoadInto(cluster, Load(2, 16)), IsOk());
    v1::GenerateRequest request = Mix(kLong + 1).back();
    request.set_no_drafts(true);
    request.set_no_prefix_cache(true);
    const Answer answer = cluster.Generate(request);
    ExpectSame(answer, alone_[kLong]);
    const uint32_t pieces = answer.end->timings().rounds() - (request.new_tokens_max() - 1);
    EXPECT_EQ(pieces, (LengthOf(kLong) + chunk - 1) / chunk);
    ExpectAllSame(Together(cluster, Mix(20)));
    EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
  }
}

// One context of pages for 64 sessions: they wait for each other, or are told why not.
TEST_F(RoundsTest, WithoutRoomForAllEachIsAnsweredAsAloneOrRefusedByName) {
  Cluster cluster({.nodes = 1});
  ASSERT_THAT(LoadInto(cluster, Load(1, 1)), IsOk());
  const std::vector<Answer> answers = Together(cluster, Mix(kCount));
  int completed = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("request ", i));
    if (answers[i].status.ok()) {
      ++completed;
      ExpectSame(answers[i], alone_[i]);
      continue;
    }
    const FailureKind kind = FailureKindOf(answers[i].status);
    EXPECT_TRUE(kind == FailureKind::kKvExhausted || kind == FailureKind::kOverloaded)
        << answers[i].status;
    EXPECT_THAT(answers[i].tokens, ::testing::IsEmpty()) << "refused, but not whole";
  }
  EXPECT_GT(completed, 0);
  std::printf("%d of %d completed\n", completed, kCount);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

}  // namespace
}  // namespace shardline::testing
