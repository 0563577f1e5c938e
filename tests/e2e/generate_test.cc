// Several processes answer as the reference does, and as one process does, bit for bit.

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// How far 8-bit activations may move a logit of this model; tests/node/exec measures and holds it.
constexpr float kLogitTolerance = 1.0F;

v1::LoadModelRequest Load(uint32_t shards) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_shards(shards);
  request.set_context_tokens_max(1024);
  return request;
}

v1::LoadModelRequest LoadRanges(const std::vector<LayerRange>& ranges) {
  v1::LoadModelRequest request = Load(0);
  for (const LayerRange& range : ranges) {
    v1::LayerRange* added = request.add_ranges();
    added->set_begin(range.begin);
    added->set_end(range.end);
  }
  return request;
}

std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  requests.push_back(Greedy("The capital of France is", 24));
  std::string longer;
  for (int i = 0; i < 30; ++i) absl::StrAppend(&longer, "Line ", i, " of a prompt in pieces.\n");
  requests.push_back(Greedy(longer, 8));
  v1::GenerateRequest seeded = Greedy("Once upon a time", 24);
  seeded.mutable_sampling()->set_temperature(0.8F);
  seeded.mutable_sampling()->set_top_p(0.95F);
  seeded.mutable_sampling()->set_top_k(50);
  seeded.mutable_sampling()->set_repetition_penalty(1.1F);
  seeded.mutable_sampling()->set_seed(42);
  requests.push_back(seeded);
  return requests;
}

TEST(GenerateTest, AnyCutGivesTheBitsOfOneProcess) {
  Cluster cluster({.nodes = 5, .memory = "1GiB"});
  std::vector<Answer> reference;
  const std::vector<std::vector<LayerRange>> cuts = {
      {{0, 30}},
      {{0, 15}, {15, 30}},
      {{0, 10}, {10, 20}, {20, 30}},
      {{0, 1}, {1, 29}, {29, 30}},
      {{0, 7}, {7, 9}, {9, 16}, {16, 29}, {29, 30}},
  };
  for (const std::vector<LayerRange>& ranges : cuts) {
    SCOPED_TRACE(absl::StrCat(ranges.size(), " shards"));
    ASSERT_THAT(cluster.LoadModel(LoadRanges(ranges)), IsOk());
    size_t i = 0;
    for (const v1::GenerateRequest& request : Requests()) {
      Answer answer = cluster.Generate(request);
      ASSERT_THAT(answer.status, IsOk());
      ASSERT_TRUE(answer.end.has_value());
      EXPECT_EQ(answer.started.route_size(), static_cast<int>(ranges.size()));
      EXPECT_EQ(answer.tokens.size(), request.new_tokens_max());
      if (ranges.size() == 1) {
        reference.push_back(std::move(answer));
        continue;
      }
      EXPECT_THAT(answer.tokens, ElementsAreArray(reference[i].tokens));
      EXPECT_THAT(answer.digests, ElementsAreArray(reference[i].digests));
      EXPECT_EQ(answer.text, reference[i].text);
      ++i;
    }
    ASSERT_THAT(cluster.UnloadModel("smollm2"), IsOk());
  }
}

TEST(GenerateTest, SessionsAtOnceAnswerAsEachAlone) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3)), IsOk());
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(Greedy(absl::StrCat("Question ", i, ": what is ", i, " times seven?"), 16));
    if (i % 2 == 1) {
      requests.back().mutable_sampling()->set_temperature(0.9F);
      requests.back().mutable_sampling()->set_seed(static_cast<uint64_t>(i));
    }
  }
  std::vector<Answer> alone;
  for (const v1::GenerateRequest& request : requests) alone.push_back(cluster.Generate(request));
  std::vector<Answer> together(requests.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = cluster.Generate(requests[i]); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_THAT(alone[i].status, IsOk());
    ASSERT_THAT(together[i].status, IsOk());
    EXPECT_THAT(together[i].tokens, ElementsAreArray(alone[i].tokens)) << i;
    EXPECT_THAT(together[i].digests, ElementsAreArray(alone[i].digests)) << i;
  }
}

// The recorded continuations were made by another engine in float32; tokens must be equal up to
// the first step whose two best candidates are closer than our arithmetic resolves.
TEST(GenerateTest, ThreeProcessesSayWhatTheReferenceSays) {
  std::ifstream stream("tests/golden/smollm2_135m_q4_1.json");
  const nlohmann::json golden = nlohmann::json::parse(stream);
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3)), IsOk());
  int compared = 0;
  for (const nlohmann::json& golden_case : golden["cases"]) {
    v1::GenerateRequest request = Greedy("", 64);
    for (const int32_t id : golden_case["prompt_ids"]) request.mutable_tokens()->add_ids(id);
    const Answer answer = cluster.Generate(request);
    ASSERT_THAT(answer.status, IsOk());
    const nlohmann::json& reference = golden_case["exact"];
    for (size_t i = 0; i < answer.tokens.size() && i < reference["continuation_ids"].size(); ++i) {
      if (reference["gaps"][i].get<float>() < kLogitTolerance) break;
      ASSERT_EQ(answer.tokens[i], reference["continuation_ids"][i].get<int32_t>()) << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);  // The tolerance must not have excused everything.
}

TEST(GenerateTest, ShardctlStreamsTheSameText) {
  Cluster cluster({.nodes = 3});
  const CommandResult loaded = cluster.Shardctl({"model", "load", GoldenModelPath(), "--name",
                                                 "smollm2", "--shards", "3", "--context", "512"});
  ASSERT_EQ(loaded.exit_code, 0) << loaded.err;
  const Answer answer = cluster.Generate(Greedy("The capital of France is", 12));
  const CommandResult said = cluster.Shardctl(
      {"generate", "smollm2", "The capital of France is", "--max-tokens", "12", "--ignore-eos"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr(answer.text));
  EXPECT_THAT(said.err, HasSubstr("tokens/s"));

  const CommandResult map = cluster.Shardctl({"shard", "list"});
  EXPECT_EQ(map.exit_code, 0);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(map.out, HasSubstr(cluster.NodeName(i)));

  const CommandResult nodes = cluster.Shardctl({"node", "list", "-o", "json"});
  ASSERT_EQ(nodes.exit_code, 0) << nodes.err;
  const nlohmann::json list = nlohmann::json::parse(nodes.out);
  EXPECT_EQ(list["kind"], "NodeList");
  EXPECT_EQ(list["items"].size(), 3u);
  EXPECT_EQ(cluster.Shardctl({"status"}).exit_code, 0);
}

TEST(GenerateTest, AClientThatLeavesGivesItsPagesBack) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3)), IsOk());
  {
    grpc::ClientContext context;
    auto reader = cluster.inference().Generate(&context, Greedy("Count: one, two,", 900));
    v1::GenerateEvent event;
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), [](Cluster& c) {
    for (const v1::NodeSummary& node : c.ListNodes().nodes()) {
      if (node.attempts_open() != 0 || node.kv_pages_free() != node.kv_pages_total()) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace shardline::testing
