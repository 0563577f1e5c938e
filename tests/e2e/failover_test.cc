// A session outlives its nodes, its wires and its coordinator: its stream goes on without a gap, a
// repeat or a change, and equals the undisturbed run bit for bit (cases W1, W2 and W4).

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "tests/e2e/chaos_client.h"
#include "tests/e2e/chaos_faults.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/same_answer.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Nodes of so much memory hold one of these ranges each, and two of them not the whole model.
constexpr char kTightMemory[] = "90MiB";
const std::vector<LayerRange> kTightRanges = {{0, 7}, {7, 19}, {19, 30}};
constexpr absl::Duration kHealMax = absl::Seconds(30);

v1::LoadModelRequest InRanges(const std::vector<LayerRange>& ranges) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_context_tokens_max(1024);
  for (const LayerRange& range : ranges) {
    v1::LayerRange* added = request.add_ranges();
    added->set_begin(range.begin);
    added->set_end(range.end);
  }
  return request;
}

absl::Status Load(Cluster& cluster, uint32_t replicas = 1) {
  v1::LoadModelRequest request = InRanges({{0, 10}, {10, 21}, {21, 30}});
  request.set_replicas(replicas);
  return cluster.LoadModel(request);
}

absl::Status LoadTightly(Cluster& cluster) {
  v1::LoadModelRequest request = InRanges(kTightRanges);
  request.set_context_tokens_max(512);
  request.set_sessions_max(1);
  return cluster.LoadModel(request);
}

// Runs `request`; at token `at` (0: before the first) `strike` hits the node of `stage`.
class Disturbed {
 public:
  Disturbed(Cluster& cluster, const v1::GenerateRequest& request, int stage, int at,
            const std::function<void(int victim)>& strike) {
    v1::GenerateStarted started;
    const auto hit = [&] {
      victim = started.route(stage).node_id().back() - 'a';
      strike(victim);
    };
    answer = cluster.Generate(
        request,
        [&](int count) {
          if (count == at) hit();
        },
        [&](const v1::GenerateStarted& event) {
          started = event;
          if (at == 0) hit();
        });
  }

  Answer answer;
  int victim = -1;
};

class FailoverTest : public ::testing::TestWithParam<int> {};

TEST_P(FailoverTest, AKilledStageIsReplacedByAReplicaAndNothingShows) {
  Cluster cluster({.nodes = 6});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  request.mutable_sampling()->set_temperature(0.8F);
  request.mutable_sampling()->set_seed(7);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  const Disturbed run(cluster, request, GetParam(), 10,
                      [&](int victim) { cluster.node(victim).Signal(SIGKILL); });
  ExpectSame(run.answer, calm);
  ASSERT_EQ(run.answer.restarts.size(), 1u);
  const v1::GenerateRestarted& restart = run.answer.restarts[0];
  EXPECT_EQ(restart.reason().detail().node_id(), cluster.NodeName(run.victim));
  for (const v1::RouteStage& stage : restart.route()) {
    EXPECT_NE(stage.node_id(), cluster.NodeName(run.victim));
  }
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_P(FailoverTest, APausedStageIsReplacedAndIsHarmlessWhenItWakes) {
  Cluster cluster({.nodes = 6});
  ASSERT_THAT(Load(cluster, 2), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  for (const int at : {0, 10}) {
    SCOPED_TRACE(absl::StrCat("at token ", at));
    const Disturbed run(cluster, request, GetParam(), at,
                        [&](int victim) { cluster.node(victim).Signal(SIGSTOP); });
    ExpectSame(run.answer, calm);
    EXPECT_EQ(run.answer.restarts.size(), 1u);
    // The woken node finds itself fenced: what it still wanted to say changes nothing.
    cluster.node(run.victim).Signal(SIGCONT);
    ExpectSame(cluster.Generate(request), calm);
    EXPECT_TRUE(cluster.Until(kHealMax, [](Cluster& c) { return c.Status().nodes_ready() == 6; }));
    EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
  }
}

// The replacement has never seen the session: its KV comes from the history alone.
TEST_P(FailoverTest, AStageKilledAfterTheFirstDecodeStepIsReplacedFromTheHistory) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(Load(cluster), IsOk());
  v1::GenerateRequest request = Greedy("", 48);
  request.mutable_tokens()->add_ids(504);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  const Disturbed run(cluster, request, GetParam(), 2,
                      [&](int victim) { cluster.node(victim).Signal(SIGKILL); });
  ExpectSame(run.answer, calm);
  EXPECT_GE(run.answer.restarts.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(HeadMiddleLast, FailoverTest, ::testing::Values(0, 1, 2),
                         [](const ::testing::TestParamInfo<int>& stage) {
                           return std::string(stage.param == 0   ? "Head"
                                              : stage.param == 1 ? "Middle"
                                                                 : "Last");
                         });

TEST_F(FailoverTest, ARestartedNodeTakesItsLayersUpAgain) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory});
  ASSERT_THAT(LoadTightly(cluster), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  const Disturbed run(cluster, request, 1, 10, [&](int victim) {
    cluster.node(victim).Signal(SIGKILL);
    cluster.node(victim).Wait(absl::Seconds(5));
    cluster.StartNode(victim);
  });
  ExpectSame(run.answer, calm);
  EXPECT_EQ(run.answer.restarts.size(), 1u);
}

TEST_F(FailoverTest, WhenNobodyCanTakeItsPlaceTheRequestEndsByItsDeadline) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory});
  ASSERT_THAT(LoadTightly(cluster), IsOk());
  v1::GenerateRequest request = Greedy("The quick brown fox", 200);
  request.set_deadline_ms(5000);
  const Disturbed run(cluster, request, 1, 10,
                      [&](int victim) { cluster.node(victim).Signal(SIGKILL); });
  EXPECT_FALSE(run.answer.status.ok());
  EXPECT_FALSE(run.answer.end.has_value()) << "a failure must not look like an answer";
  EXPECT_THAT(std::string(run.answer.status.message()), HasSubstr(cluster.NodeName(run.victim)));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(FailoverTest, TheSurvivorsTakeTheLayersOfANodeThatStaysAway) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(Load(cluster), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  const Disturbed run(cluster, request, 1, 10,
                      [&](int victim) { cluster.node(victim).Signal(SIGKILL); });
  ExpectSame(run.answer, calm);
  ASSERT_EQ(run.answer.restarts.size(), 1u);
  EXPECT_LE(run.answer.restarts[0].route_size(), 2);
}

TEST_F(FailoverTest, AConnectionResetInTheMiddleOfABundleDoesNotShow) {
  Cluster cluster({.nodes = 3, .proxied = true});
  ASSERT_THAT(Load(cluster), IsOk());
  const v1::GenerateRequest request = Greedy("The quick brown fox", 64);
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  for (const int64_t bytes : {1, 40, 700, 2000, 2500}) {
    SCOPED_TRACE(absl::StrCat(bytes, " bytes"));
    const Disturbed run(cluster, request, 1, 10,
                        [&](int victim) { cluster.data_proxy(victim).ResetAfter(bytes); });
    ExpectSame(run.answer, calm);
  }
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(FailoverTest, ACoordinatorThatComesBackGoesOnWithClientsThatReattach) {
  Cluster cluster({.nodes = 3, .proxied = true});
  ASSERT_THAT(Load(cluster), IsOk());
  Recipe recipe = {.request = Greedy("The quick brown fox", kRecipeTokens)};
  const Answer calm = cluster.Generate(recipe.request);
  ASSERT_THAT(calm.status, IsOk());
  std::atomic<int64_t> tokens_seen = 0;
  FaultDriver faults(&cluster, {{.fault = Fault::kCoordinator, .after_tokens = 10}}, &tokens_seen);
  const ClientReport client =
      RunClient(cluster, {.tokens = kRecipeTokens, .keyed = true, .deadline = kHealMax}, recipe,
                {.tokens = calm.tokens, .digests = calm.digests}, tokens_seen);
  faults.Stop();
  EXPECT_EQ(client.outcome, ClientReport::Outcome::kCompleted) << client.status;
  EXPECT_THAT(client.violations, ::testing::IsEmpty());
  EXPECT_EQ(client.sessions.size(), 1u);
  EXPECT_EQ(client.reattaches, 1);
  EXPECT_EQ(client.text, calm.text);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST_F(FailoverTest, ACancelReachesEveryStageWhileOneIsSilent) {
  Cluster cluster({.nodes = 3});
  ASSERT_THAT(Load(cluster), IsOk());
  const Disturbed run(cluster, Greedy("The quick brown fox", 900), 1, 10, [&](int victim) {
    cluster.node(victim).Signal(SIGSTOP);
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Seconds(1)));  // Not the silent node's time.
    v1::SessionList sessions;
    ASSERT_TRUE(cluster.admin().ListSessions(&context, {}, &sessions).ok());
    ASSERT_EQ(sessions.sessions_size(), 1);
    grpc::ClientContext cancelling;
    cancelling.set_deadline(GrpcDeadline(absl::Seconds(1)));
    v1::CancelSessionRequest request;
    request.set_session(sessions.sessions(0).session());
    v1::CancelSessionReply reply;
    const grpc::Status status = cluster.admin().CancelSession(&cancelling, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.outcome(), "cancelled");
  });
  EXPECT_THAT(run.answer.status, FailsWith(FailureKind::kCancelled));
  EXPECT_FALSE(run.answer.end.has_value());
  EXPECT_TRUE(cluster.Until(absl::Seconds(2), [&](Cluster& c) {
    const v1::NodeList nodes = c.ListNodes();
    for (const v1::NodeSummary& node : nodes.nodes()) {
      if (node.node_id() == c.NodeName(run.victim)) continue;
      if (node.attempts_open() != 0 || node.kv_pages_free() != node.kv_pages_total()) return false;
    }
    return true;
  }));
  cluster.node(run.victim).Signal(SIGCONT);
  EXPECT_TRUE(cluster.Until(kHealMax, [](Cluster& c) { return c.Status().nodes_ready() == 3; }));
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

}  // namespace
}  // namespace shardline::testing
