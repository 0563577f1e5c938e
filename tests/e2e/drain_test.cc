// Real processes taken out of service while they serve: a stream that runs over one goes on without
// a changed token, and a request that comes at that moment is served or refused, never lost.

#include <signal.h>

#include <atomic>
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
using ::testing::HasSubstr;

absl::Status Load(Cluster& cluster, uint32_t replicas, uint32_t sessions = 4) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_context_tokens_max(512);
  request.set_shards(2);
  request.set_replicas(replicas);
  request.set_sessions_max(sessions);
  const absl::Status status = cluster.LoadModel(request);
  if (!status.ok()) return status;
  const bool proven = cluster.UntilAllProven(absl::Seconds(10));
  return proven ? absl::OkStatus() : absl::DeadlineExceededError("probes go on");
}

class DrainTest : public ::testing::Test {
 protected:
  // Runs `request`; at its tenth token `strike` hits the node of the stage.
  Answer Disturbed(Cluster& cluster, const v1::GenerateRequest& request, int stage,
                   const std::function<void(int victim)>& strike) {
    v1::GenerateStarted started;
    return cluster.Generate(
        request,
        [&](int count) {
          if (count == 10) strike(started.route(stage).node_id().back() - 'a');
        },
        [&](const v1::GenerateStarted& event) { started = event; });
  }
};

TEST_F(DrainTest, AStreamOverADrainedReplicaGoesOnWithoutAChangedToken) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 96);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  for (const int stage : {0, 1}) {
    SCOPED_TRACE(absl::StrCat("stage ", stage));
    std::string name;
    CommandResult drained;
    std::thread operate;
    const Answer answer = Disturbed(cluster, request, stage, [&](int victim) {
      name = cluster.NodeName(victim);
      operate = std::thread([&] {
        drained = cluster.Shardctl({"node", "drain", name, "--deadline", "0s"});
      });
    });
    operate.join();
    EXPECT_EQ(drained.exit_code, 0) << drained.err;
    EXPECT_THAT(drained.out, HasSubstr("drained"));
    ExpectSame(answer, calm);
    ASSERT_EQ(answer.restarts.size(), 1u);
    for (const v1::RouteStage& at : answer.restarts[0].route()) EXPECT_NE(at.node_id(), name);
    EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
    EXPECT_EQ(cluster.Shardctl({"node", "uncordon", name}).exit_code, 0);
  }
}

TEST_F(DrainTest, ANodeToldToStopDrainsItselfAndLeaves) {
  Cluster cluster({.nodes = 4, .node_arguments = {"--drain-timeout=4s"}});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 300);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  int stopped = -1;
  const Answer answer = Disturbed(cluster, request, 1, [&](int victim) {
    stopped = victim;
    cluster.node(victim).Signal(SIGTERM);
  });
  ExpectSame(answer, calm);
  EXPECT_EQ(cluster.node(stopped).Wait(absl::Seconds(10)), 0);
}

TEST_F(DrainTest, RequestsThatArriveWhileANodeDrainsAreServedOrRefusedNeverLost) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 12);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  std::vector<Answer> answers(24);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      for (size_t at = next++; at < answers.size(); at = next++) {
        answers[at] = cluster.Generate(request);
      }
    });
  }
  const v1::NodeList nodes = cluster.ListNodes();
  for (const v1::NodeSummary& node : nodes.nodes()) {
    EXPECT_EQ(cluster.Shardctl({"node", "drain", node.node_id(), "--deadline", "0s"}).exit_code, 0);
    EXPECT_EQ(cluster.Shardctl({"node", "uncordon", node.node_id()}).exit_code, 0);
  }
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) ExpectSame(answer, calm);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

// Room for one full context: what does not fit beside others waits for its turn.
TEST_F(DrainTest, MoreRequestsThanFitWaitTheirTurnAndAllFinish) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(Load(cluster, 1, /*sessions=*/1), IsOk());
  v1::GenerateRequest request = Greedy("The quick brown fox", 200);
  request.set_new_tokens_max(200);
  std::vector<Answer> answers(8);
  std::vector<std::thread> clients;
  for (Answer& answer : answers) {
    clients.emplace_back([&cluster, &request, &answer] { answer = cluster.Generate(request); });
  }
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) ExpectSame(answer, answers[0]);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(DrainTest, ACoordinatorToldToStopLetsRunningRequestsEnd) {
  Cluster cluster({.nodes = 2, .coordinator_arguments = {"--drain=20s"}});
  ASSERT_THAT(Load(cluster, 1), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  const Answer calm = cluster.Generate(request);
  const Answer answer =
      Disturbed(cluster, request, 0, [&](int) { cluster.coordinator().Signal(SIGTERM); });
  ExpectSame(answer, calm);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(10)), 0);
}

}  // namespace
}  // namespace shardline::testing
