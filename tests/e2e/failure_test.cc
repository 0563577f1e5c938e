// A node that dies, freezes or is cut off, and whose layers nobody else has room for, ends the
// request by its deadline, with an error that names it; the rest of the cluster lives on, and the
// next request works once the node is back. failover_test has the cases with a way out.

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(4);
// The deadline, its grace, and what a loaded test machine may add.
constexpr absl::Duration kNoticeMax = absl::Seconds(8);

// More than can be generated before it is cut.
v1::GenerateRequest Long() {
  v1::GenerateRequest request = Greedy("The quick brown fox", 480);
  request.set_deadline_ms(absl::ToInt64Milliseconds(kDeadline));
  return request;
}

class FailureTest : public ::testing::TestWithParam<int> {
 protected:
  void Load(Cluster& cluster) {
    v1::LoadModelRequest request;
    request.set_path(GoldenModelPath());
    request.set_name("smollm2");
    request.set_context_tokens_max(512);
    request.set_sessions_max(1);
    for (const LayerRange range : kRanges) {
      v1::LayerRange* added = request.add_ranges();
      added->set_begin(range.begin);
      added->set_end(range.end);
    }
    ASSERT_THAT(cluster.LoadModel(request), IsOk());
  }

  // Which node holds stage `stage`.
  static int NodeOfStage(Cluster& cluster, int stage) {
    const v1::NodeList nodes = cluster.ListNodes();
    for (const v1::NodeSummary& node : nodes.nodes()) {
      if (node.layers().begin() == kRanges[stage].begin) return node.node_id().back() - 'a';
    }
    ADD_FAILURE() << "no node holds stage " << stage;
    return 0;
  }

  // The error a client must see when the node of `stage` failed and nobody can take its place.
  // Heartbeats, a broken stream or a step that is not answered in time, whichever is first, tell.
  static void ExpectNames(const Answer& answer, const Cluster& cluster, int node, int stage) {
    EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
    EXPECT_FALSE(answer.end.has_value()) << "a failure must not look like an answer";
    const std::string message(answer.status.message());
    EXPECT_THAT(message, HasSubstr(cluster.NodeName(node)));
    EXPECT_THAT(message, HasSubstr(kRanges[stage].ToString()));
  }

  static void ExpectPagesReturn(Cluster& cluster, int except = -1) {
    EXPECT_TRUE(cluster.Until(kNoticeMax, [&](Cluster& c) {
      const v1::NodeList nodes = c.ListNodes();
      for (const v1::NodeSummary& node : nodes.nodes()) {
        if (except >= 0 && node.node_id() == c.NodeName(except)) continue;
        if (node.kv_pages_free() != node.kv_pages_total()) return false;
      }
      return true;
    }));
  }

  static void ExpectReady(Cluster& cluster) {
    EXPECT_TRUE(cluster.Until(absl::Seconds(30), [](Cluster& c) {
      const v1::ClusterStatus status = c.Status();
      return status.models_size() == 1 && status.models(0).state() == v1::MODEL_STATE_READY;
    })) << cluster.Status().DebugString();
  }

  // A node of kTightMemory holds one of them; two such nodes do not hold the model.
  static constexpr char kTightMemory[] = "90MiB";
  static constexpr LayerRange kRanges[] = {{0, 7}, {7, 19}, {19, 30}};
};

TEST_P(FailureTest, AKilledNodeIsNamedAndTheNextRequestWorksWhenItIsBack) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant killed;
  const Answer cut = cluster.Generate(Long(), [&](int count) {
    if (count != 10) return;
    killed = SystemClock()->Now();
    cluster.node(victim).Signal(SIGKILL);
  });
  EXPECT_LT(SystemClock()->Now() - killed, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage);
  EXPECT_LT(cut.tokens.size(), 480u);
  ExpectPagesReturn(cluster, victim);
  EXPECT_TRUE(cluster.coordinator().Running());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cluster.node(i).Running(), i != victim);

  // Until it is back, a request is refused at once, with the reason.
  const Answer refused = cluster.Generate(Greedy("The quick brown fox", 4));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr(cluster.NodeName(victim)));

  cluster.StartNode(victim);
  ExpectReady(cluster);
  const Answer again = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(again.status, IsOk());
  EXPECT_THAT(again.tokens, ElementsAreArray(whole.tokens));
  EXPECT_THAT(again.digests, ElementsAreArray(whole.digests));
}

TEST_P(FailureTest, APausedNodeIsNamedAndServesAgainAfterwards) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant paused;
  const Answer cut = cluster.Generate(Long(), [&](int count) {
    if (count != 10) return;
    paused = SystemClock()->Now();
    cluster.node(victim).Signal(SIGSTOP);
  });
  EXPECT_LT(SystemClock()->Now() - paused, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage);
  ExpectPagesReturn(cluster, victim);
  EXPECT_TRUE(cluster.coordinator().Running());

  cluster.node(victim).Signal(SIGCONT);
  ExpectReady(cluster);
  ExpectPagesReturn(cluster);  // The woken node's own, too.
  const Answer again = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(again.status, IsOk());
  EXPECT_THAT(again.digests, ElementsAreArray(whole.digests));
}

TEST_P(FailureTest, ANodeCutOffIsNamedAndServesAgainWhenTheCableIsMended) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory, .proxied = true});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant cut_at;
  const Answer cut = cluster.Generate(Long(), [&](int count) {
    if (count != 10) return;
    cut_at = SystemClock()->Now();
    cluster.data_proxy(victim).Cut();
    cluster.control_proxy(victim).Cut();
  });
  EXPECT_LT(SystemClock()->Now() - cut_at, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage);
  ExpectPagesReturn(cluster, victim);

  cluster.data_proxy(victim).Mend();
  cluster.control_proxy(victim).Mend();
  ExpectReady(cluster);
  const Answer again = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(again.status, IsOk());
  EXPECT_THAT(again.digests, ElementsAreArray(whole.digests));
}

INSTANTIATE_TEST_SUITE_P(HeadMiddleLast, FailureTest, ::testing::Values(0, 1, 2),
                         [](const ::testing::TestParamInfo<int>& stage) {
                           return std::string(stage.param == 0   ? "Head"
                                              : stage.param == 1 ? "Middle"
                                                                 : "Last");
                         });

// Only the data path to a node is cut; both ends still reach the coordinator.
TEST_F(FailureTest, ACutLinkEndsTheRequestInBoundedTime) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory, .proxied = true});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const int victim = NodeOfStage(cluster, 1);
  Instant cut_at;
  const Answer cut = cluster.Generate(Long(), [&](int count) {
    if (count != 10) return;
    cut_at = SystemClock()->Now();
    cluster.data_proxy(victim).Cut();
  });
  EXPECT_FALSE(cut.status.ok());
  EXPECT_NE(FailureKindOf(cut.status), FailureKind::kNone) << cut.status;
  EXPECT_FALSE(cut.end.has_value());
  EXPECT_LT(SystemClock()->Now() - cut_at, kNoticeMax);
  cluster.data_proxy(victim).Mend();  // Until then the coordinator's probes come and go.
  ExpectPagesReturn(cluster);
  EXPECT_TRUE(cluster.Until(absl::Seconds(30), [](Cluster& c) {
    return c.Generate(Greedy("The quick brown fox", 4)).status.ok();
  }));
}

TEST_F(FailureTest, ADeadlineEndsTheRequestWithinItsGrace) {
  Cluster cluster({.nodes = 3, .memory = kTightMemory});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  v1::GenerateRequest request = Long();
  request.set_deadline_ms(300);
  const Answer answer = cluster.Generate(request);
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
  EXPECT_FALSE(answer.end.has_value());
  ExpectPagesReturn(cluster);
}

}  // namespace
}  // namespace shardline::testing
