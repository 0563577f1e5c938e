// While nobody may take over for a node that dies, freezes or is cut off, the request waits for it
// and ends at its deadline with an error that names it; the rest of the cluster lives on, and the
// next request works once the node is back. What a takeover looks like: failover_test.cc.

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Heartbeat timeout of the defaults, plus what a loaded test machine may add.
constexpr absl::Duration kNoticeMax = absl::Seconds(8);
// Of requests whose node does not come back.
constexpr absl::Duration kPatience = absl::Seconds(5);

// A long answer, whose client waits only so long.
v1::GenerateRequest Impatient() {
  v1::GenerateRequest request = Greedy("The quick brown fox", 900);
  request.set_deadline_ms(absl::ToInt64Milliseconds(kPatience));
  return request;
}

// Nobody takes over the layers of a node that is away.
const std::vector<std::string> kNoReplan = {"--replan-after", "inf"};

class FailureTest : public ::testing::TestWithParam<int> {
 protected:
  void Load(Cluster& cluster) {
    v1::LoadModelRequest request;
    request.set_path(GoldenModelPath());
    request.set_name("smollm2");
    request.set_context_tokens_max(1024);
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

  // The coordinator's beats or a neighbour's pulses, whoever misses them first.
  static constexpr char kSilence[] = "heartbeat lost|is silent";

  // What a client must see when the node of `stage` failed and stayed away. `noticed` says how it
  // was found out: by the heartbeats or a broken stream, not by the slower step timer.
  static void ExpectNames(const Answer& answer, const Cluster& cluster, int node, int stage,
                          const std::string& noticed) {
    EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
    EXPECT_FALSE(answer.end.has_value()) << "a failure must not look like an answer";
    const std::string message(answer.status.message());
    EXPECT_THAT(message, HasSubstr("waiting for a route"));
    EXPECT_THAT(message, HasSubstr(cluster.NodeName(node)));
    EXPECT_THAT(message, HasSubstr(kRanges[stage].ToString()));
    EXPECT_THAT(message, ContainsRegex(noticed));
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

  static constexpr LayerRange kRanges[] = {{0, 10}, {10, 21}, {21, 30}};
};

TEST_P(FailureTest, AKilledNodeIsNamedAndTheNextRequestWorksWhenItIsBack) {
  Cluster cluster({.nodes = 3, .coordinator_arguments = kNoReplan});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant killed;
  const Answer cut = cluster.Generate(Impatient(), [&](int count) {
    if (count != 10) return;
    killed = SystemClock()->Now();
    cluster.node(victim).Signal(SIGKILL);
  });
  EXPECT_LT(SystemClock()->Now() - killed, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage, "stream reset");
  EXPECT_LT(cut.tokens.size(), 900u);
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
  Cluster cluster({.nodes = 3, .coordinator_arguments = kNoReplan});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant paused;
  const Answer cut = cluster.Generate(Impatient(), [&](int count) {
    if (count != 10) return;
    paused = SystemClock()->Now();
    cluster.node(victim).Signal(SIGSTOP);
  });
  EXPECT_LT(SystemClock()->Now() - paused, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage, kSilence);
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
  Cluster cluster({.nodes = 3, .proxied = true, .coordinator_arguments = kNoReplan});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const Answer whole = cluster.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const int stage = GetParam();
  const int victim = NodeOfStage(cluster, stage);

  Instant cut_at;
  const Answer cut = cluster.Generate(Impatient(), [&](int count) {
    if (count != 10) return;
    cut_at = SystemClock()->Now();
    cluster.data_proxy(victim).Cut();
    cluster.control_proxy(victim).Cut();
  });
  EXPECT_LT(SystemClock()->Now() - cut_at, kNoticeMax);
  ExpectNames(cut, cluster, victim, stage, kSilence);
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
  Cluster cluster({.nodes = 3, .proxied = true, .coordinator_arguments = kNoReplan});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  const int victim = NodeOfStage(cluster, 1);
  Instant cut_at;
  const Answer cut = cluster.Generate(Impatient(), [&](int count) {
    if (count != 10) return;
    cut_at = SystemClock()->Now();
    cluster.data_proxy(victim).Cut();
  });
  EXPECT_FALSE(cut.status.ok());
  EXPECT_NE(FailureKindOf(cut.status), FailureKind::kNone) << cut.status;
  EXPECT_FALSE(cut.end.has_value());
  EXPECT_LT(SystemClock()->Now() - cut_at, kNoticeMax);
  ExpectPagesReturn(cluster, victim);
  cluster.data_proxy(victim).Mend();
  EXPECT_TRUE(cluster.Until(absl::Seconds(30), [](Cluster& c) {
    return c.Generate(Greedy("The quick brown fox", 4)).status.ok();
  }));
}

TEST_F(FailureTest, ADeadlineEndsTheRequestWithinItsGrace) {
  Cluster cluster({.nodes = 3});
  ASSERT_NO_FATAL_FAILURE(Load(cluster));
  v1::GenerateRequest request = Greedy("The quick brown fox", 900);
  request.set_deadline_ms(300);
  const Answer answer = cluster.Generate(request);
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
  EXPECT_FALSE(answer.end.has_value());
  ExpectPagesReturn(cluster);
}

}  // namespace
}  // namespace shardline::testing
