// Reports from the trackers of other systems, replayed here: the ids are those of the table in
// README.md.

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

v1::LoadModelRequest Load(uint32_t shards, uint32_t context = 1024, uint32_t sessions_max = 4) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_shards(shards);
  request.set_context_tokens_max(context);
  request.set_sessions_max(sessions_max);
  return request;
}

bool AllNodesFree(Cluster& cluster) {
  const v1::NodeList nodes = cluster.ListNodes();
  const bool all_there =
      std::none_of(nodes.nodes().begin(), nodes.nodes().end(),
                   [](const v1::NodeSummary& node) { return node.state() == v1::NODE_STATE_LOST; });
  return all_there && AllPagesFree(cluster);
}

// K1: what one conversation said never turns up in another one.
TEST(CasesTest, AWordOfOneChatNeverTurnsUpInAnother) {
  constexpr int kChats = 10;
  constexpr int kRounds = 20;
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3)), IsOk());
  const auto marker = [](int i) { return absl::StrCat("Xylo", i, "quax", i * i); };
  for (int i = 0; i < kChats; ++i) {
    const std::string prompt =
        absl::StrCat("My name is ", marker(i), ". Repeat after me: ", marker(i), ", ", marker(i));
    const Answer answer = cluster.Generate(Greedy(prompt, 12));
    ASSERT_THAT(answer.status, IsOk());
  }
  const std::vector<std::string> prompts = {"My name is", "Repeat after me:"};
  std::vector<Answer> alone;
  for (const std::string& prompt : prompts) alone.push_back(cluster.Generate(Greedy(prompt, 16)));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Answer> together(prompts.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < prompts.size(); ++i) {
      clients.emplace_back([&, i] { together[i] = cluster.Generate(Greedy(prompts[i], 16)); });
    }
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_THAT(together[i].status, IsOk());
      EXPECT_THAT(together[i].digests, ElementsAreArray(alone[i].digests)) << round;
      for (int chat = 0; chat < kChats; ++chat) {
        EXPECT_THAT(together[i].text, Not(HasSubstr(marker(chat))));
      }
    }
  }
}

// K3: the client is killed in the middle of a long answer.
TEST(CasesTest, AKilledClientGivesItsPagesBackOnEveryStage) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3, 4352)), IsOk());
  const std::string output = cluster.directory() + "/client.out";
  Process client(
      {.argv = {BinaryPath("shardctl"), "--endpoint", cluster.coordinator_address(), "generate",
                "smollm2", "Count: one, two, three,", "--max-tokens", "4096", "--ignore-eos"},
       .environment = {},
       .output_path = output});
  ASSERT_TRUE(cluster.Until(absl::Seconds(20), [&](Cluster&) {
    return ReadFile(output).size() > 20;  // Some five tokens.
  })) << ReadFile(output);
  EXPECT_TRUE(cluster.Until(absl::Seconds(2), [](Cluster& c) { return !AllNodesFree(c); }));
  client.Signal(SIGKILL);
  client.Wait(absl::Seconds(5));
  EXPECT_TRUE(cluster.Until(absl::Seconds(2), AllNodesFree)) << cluster.ListNodes().DebugString();
  EXPECT_EQ(cluster.Status().sessions_running(), 0u);
}

// K4: room for one; who waits behind it and leaves does it no harm.
TEST(CasesTest, AClientThatLeavesTheQueueDoesNotDisturbTheOneThatRuns) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(cluster.LoadModel(Load(3, 512, 1)), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 400);
  const Answer alone = cluster.Generate(request);
  ASSERT_THAT(alone.status, IsOk());
  const Answer disturbed = cluster.Generate(request, [&](int count) {
    if (count % 100 != 50) return;
    grpc::ClientContext context;
    auto second = cluster.inference().Generate(&context, Greedy("Another story", 400));
    std::thread leaves([&] { context.TryCancel(); });
    v1::GenerateEvent event;
    while (second->Read(&event)) {
    }
    EXPECT_FALSE(second->Finish().ok());
    leaves.join();
  });
  ASSERT_THAT(disturbed.status, IsOk());
  EXPECT_THAT(disturbed.tokens, ElementsAreArray(alone.tokens));
  EXPECT_THAT(disturbed.digests, ElementsAreArray(alone.digests));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllNodesFree));
}

// W3: no number of stages hangs. SHARDLINE_W3_RUNS=200 is the run by hand.
TEST(CasesTest, ThreeFourAndEightStagesNeverHang) {
  const char* const wanted = std::getenv("SHARDLINE_W3_RUNS");
  int runs = 6;
  if (wanted != nullptr) SL_CHECK(absl::SimpleAtoi(wanted, &runs));
  Cluster cluster({.nodes = 8, .memory = "512MiB"});
  std::vector<int32_t> tokens;
  for (const uint32_t stages : {3U, 4U, 8U}) {
    ASSERT_THAT(cluster.LoadModel(Load(stages)), IsOk());
    for (int run = 0; run < runs; ++run) {
      const Answer answer = cluster.Generate(Greedy("The capital of France is", 32));
      ASSERT_THAT(answer.status, IsOk()) << stages << " stages, run " << run;
      EXPECT_EQ(answer.started.route_size(), static_cast<int>(stages));
      if (tokens.empty()) tokens = answer.tokens;
      EXPECT_THAT(answer.tokens, ElementsAreArray(tokens));
    }
    ASSERT_THAT(cluster.UnloadModel("smollm2"), IsOk());
  }
}

// W6: who is a member is who lives, however fast processes come and go.
TEST(CasesTest, MembershipIsTheLiveSetAfterFastRestartsAndALossForGood) {
  Cluster cluster({.nodes = 4});
  for (int i = 0; i < 3; ++i) {
    cluster.node(0).Signal(SIGKILL);
    cluster.node(0).Wait(absl::Seconds(5));
    cluster.StartNode(0);
  }
  cluster.node(1).Signal(SIGKILL);
  EXPECT_TRUE(cluster.Until(absl::Seconds(10), [](Cluster& c) {
    std::set<std::string> ready;
    const v1::NodeList nodes = c.ListNodes();
    for (const v1::NodeSummary& node : nodes.nodes()) {
      if (node.state() == v1::NODE_STATE_READY) ready.insert(node.node_id());
    }
    return ready == std::set<std::string>{c.NodeName(0), c.NodeName(2), c.NodeName(3)};
  })) << cluster.ListNodes().DebugString();
  ASSERT_THAT(cluster.LoadModel(Load(3)), IsOk());
  const Answer answer = cluster.Generate(Greedy("The capital of France is", 8));
  ASSERT_THAT(answer.status, IsOk());
  for (const v1::RouteStage& stage : answer.started.route()) {
    EXPECT_NE(stage.node_id(), cluster.NodeName(1));
  }
}

// W14: a stage that never starts; and one that never comes back, with no room for its layers.
TEST(CasesTest, AModelWhoseStageNeverStartsIsNotReady) {
  Cluster cluster({.nodes = 1,
                   .coordinator_arguments = {"--model", GoldenModelPath(), "--model-name",
                                             "smollm2", "--shards", "2"}});
  const Answer answer = cluster.Generate(Greedy("hello", 4));
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("waits for 2 node"));
  EXPECT_GT(FailureDetailOf(answer.status).retry_after, absl::ZeroDuration());
  EXPECT_TRUE(answer.tokens.empty());
  const v1::ClusterStatus status = cluster.Status();
  EXPECT_FALSE(status.healthy());
  EXPECT_THAT(std::string(absl::StrJoin(status.problems(), "\n")), HasSubstr("waits for 2 node"));
  for (const v1::ModelSummary& model : status.models()) {
    EXPECT_NE(model.state(), v1::MODEL_STATE_READY);
  }
}

TEST(CasesTest, AModelWhoseStageIsGoneForGoodNamesTheMissingRange) {
  // Each node has room for its range, and two of them not for the whole model.
  Cluster cluster({.nodes = 3, .memory = "90MiB"});
  v1::LoadModelRequest load = Load(0, 512, 1);
  const std::pair<int, int> ranges[] = {{0, 7}, {7, 19}, {19, 30}};
  for (const auto& [begin, end] : ranges) {
    v1::LayerRange* range = load.add_ranges();
    range->set_begin(begin);
    range->set_end(end);
  }
  ASSERT_THAT(cluster.LoadModel(load), IsOk());
  int victim = -1;
  const v1::NodeList nodes = cluster.ListNodes();
  for (const v1::NodeSummary& node : nodes.nodes()) {
    if (node.layers().begin() == 7) victim = node.node_id().back() - 'a';
  }
  ASSERT_GE(victim, 0);
  cluster.node(victim).Signal(SIGKILL);
  EXPECT_TRUE(cluster.Until(absl::Seconds(10), [](Cluster& c) {
    const v1::ClusterStatus status = c.Status();
    return !status.healthy() && status.models_size() == 1 &&
           status.models(0).state() != v1::MODEL_STATE_READY;
  }));
  v1::GenerateRequest request = Greedy("hello", 4);
  request.set_deadline_ms(3000);
  const Answer answer = cluster.Generate(request);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()),
              AllOf(HasSubstr(cluster.NodeName(victim)), HasSubstr("7-18")));
  EXPECT_TRUE(answer.tokens.empty());
}

}  // namespace
}  // namespace shardline::testing
