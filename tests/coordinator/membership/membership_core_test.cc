#include "coordinator/membership/membership_core.h"

#include <random>
#include <set>

#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

NodeHello Hello(const std::string& node, const std::string& boot, uint64_t incarnation = 0) {
  return NodeHello{.protocol_min = kProtocolVersionMin,
                   .protocol_max = kProtocolVersionMax,
                   .node = NodeId(node),
                   .version = "0.1.0",
                   .address = node + ":7070",
                   .boot_id = boot,
                   .incarnation = Incarnation(incarnation)};
}

NodeBeat Beat(uint64_t number, uint64_t echo, uint64_t started = 0, uint64_t done = 0) {
  return NodeBeat{.number = number, .echo = echo, .jobs_started = started, .jobs_done = done};
}

class MembershipTest : public ::testing::Test {
 protected:
  // Welcomes `node` on `stream` and drops the actions.
  void Join(uint64_t stream, const std::string& node, const std::string& boot, int64_t ms) {
    core_.OnHello(JoinStreamId(stream), Hello(node, boot), At(ms));
    ASSERT_THAT(core_.TakeActions().welcome, SizeIs(1));
  }

  MembershipOptions options_{.nodes_max = 3};
  MembershipCore core_{options_, Incarnation(1000)};
};

TEST_F(MembershipTest, AHelloIsWelcomedWithTheFirstIncarnationOfTheBlock) {
  core_.OnHello(JoinStreamId(1), Hello("node-a", "boot-1"), At(0));
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1000));
  EXPECT_FALSE(actions.welcome[0].reconnect);
  EXPECT_TRUE(core_.IsLive(NodeId("node-a"), Incarnation(1000)));
  EXPECT_THAT(actions.lost, IsEmpty());
}

TEST_F(MembershipTest, BeatsThatNeverEchoDoNotKeepANodeAlive) {
  Join(1, "node-a", "boot-1", 0);
  for (uint64_t n = 1; n <= 5; ++n) {
    core_.OnBeat(JoinStreamId(1), Beat(n, 0), At(static_cast<int64_t>(n) * 250));
    ASSERT_THAT(core_.TakeActions().reply, SizeIs(1));
  }
  core_.OnTick(At(1499));
  EXPECT_TRUE(core_.TakeActions().empty());
  core_.OnTick(At(1500));
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.lost, SizeIs(1));
  EXPECT_EQ(actions.lost[0].kind, FailureKind::kHeartbeatLost);
  EXPECT_EQ(actions.lost[0].reason, "heartbeat lost");
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_THAT(actions.refuse[0].status,
              StatusHas(absl::StatusCode::kUnavailable, HasSubstr("1.5 s")));
}

TEST_F(MembershipTest, TheLeaseRunsFromTheLastBeatWithANewerEcho) {
  Join(1, "node-a", "boot-1", 0);
  core_.OnBeat(JoinStreamId(1), Beat(1, 0), At(250));
  core_.OnBeat(JoinStreamId(1), Beat(2, 1), At(500));
  core_.OnBeat(JoinStreamId(1), Beat(3, 1), At(1900));  // An old echo proves nothing.
  (void)core_.TakeActions();
  EXPECT_EQ(core_.NextWake(), At(2000));
  core_.OnTick(At(1999));
  EXPECT_TRUE(core_.TakeActions().empty());
  core_.OnTick(At(2000));
  EXPECT_THAT(core_.TakeActions().lost, SizeIs(1));
}

TEST_F(MembershipTest, ABrokenStreamLosesTheNodeAtOnceAndOnlyOnce) {
  Join(1, "node-a", "boot-1", 0);
  core_.OnStreamClosed(JoinStreamId(1), At(10));
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.lost, SizeIs(1));
  EXPECT_EQ(actions.lost[0].kind, FailureKind::kWorkerDeath);
  EXPECT_EQ(actions.lost[0].reason, "stream reset");
  core_.OnStreamClosed(JoinStreamId(1), At(11));
  core_.OnTick(At(5000));
  EXPECT_TRUE(core_.TakeActions().empty());
}

TEST_F(MembershipTest, ARestartIsReportedLostBeforeItIsWelcomed) {
  Join(1, "node-a", "boot-1", 0);
  core_.OnHello(JoinStreamId(2), Hello("node-a", "boot-2"), At(100));
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.lost, SizeIs(1));  // The first field: carried out first.
  EXPECT_EQ(actions.lost[0].incarnation, Incarnation(1000));
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_EQ(actions.refuse[0].stream, JoinStreamId(1));
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1001));
  EXPECT_FALSE(core_.IsLive(NodeId("node-a"), Incarnation(1000)));
  // The end of the old stream is no news of the new process.
  core_.OnStreamClosed(JoinStreamId(1), At(101));
  EXPECT_TRUE(core_.TakeActions().empty());
  EXPECT_TRUE(core_.IsLive(NodeId("node-a"), Incarnation(1001)));
}

TEST_F(MembershipTest, AReconnectOfTheSameProcessKeepsItsIncarnationAndItsLease) {
  Join(1, "node-a", "boot-1", 0);
  core_.OnHello(JoinStreamId(2), Hello("node-a", "boot-1", 1000), At(100));
  const MembershipActions actions = core_.TakeActions();
  EXPECT_THAT(actions.lost, IsEmpty());
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_TRUE(actions.welcome[0].reconnect);
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1000));
  core_.OnStreamClosed(JoinStreamId(1), At(101));
  EXPECT_TRUE(core_.TakeActions().empty());
  EXPECT_EQ(core_.NextWake(), At(1500));
}

TEST_F(MembershipTest, OfTwoProcessesWithOneIdTheNewestWinsAndTheOtherStaysOut) {
  Join(1, "node-a", "boot-1", 0);
  Join(2, "node-a", "boot-2", 100);
  for (const uint64_t incarnation : {uint64_t{1000}, uint64_t{0}}) {
    core_.OnHello(JoinStreamId(3 + incarnation), Hello("node-a", "boot-1", incarnation), At(200));
    const MembershipActions actions = core_.TakeActions();
    EXPECT_THAT(actions.welcome, IsEmpty());
    EXPECT_THAT(actions.lost, IsEmpty());
    ASSERT_THAT(actions.refuse, SizeIs(1));
    EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kStaleEpoch));
  }
  EXPECT_TRUE(core_.IsLive(NodeId("node-a"), Incarnation(1001)));
}

TEST_F(MembershipTest, ANodeThatComesBackAfterItsLossGetsAFreshIncarnation) {
  Join(1, "node-a", "boot-1", 0);
  core_.OnTick(At(1500));
  (void)core_.TakeActions();
  core_.OnHello(JoinStreamId(2), Hello("node-a", "boot-1", 1000), At(1600));
  const MembershipActions actions = core_.TakeActions();
  EXPECT_THAT(actions.lost, IsEmpty());  // It was reported when it happened.
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1001));
}

TEST_F(MembershipTest, AnExecutorThatHoldsAJobWithoutProgressIsLostThoughItsBeatsEcho) {
  Join(1, "node-a", "boot-1", 0);
  MembershipActions actions;
  int64_t ms = 0;
  for (uint64_t n = 1; actions.lost.empty() && n < 100; ++n) {
    ms += 250;
    core_.OnBeat(JoinStreamId(1), Beat(n, n - 1, /*started=*/8, /*done=*/7), At(ms));
    core_.OnTick(At(ms));
    actions = core_.TakeActions();
  }
  ASSERT_THAT(actions.lost, SizeIs(1));
  EXPECT_EQ(actions.lost[0].kind, FailureKind::kDeviceLost);
  EXPECT_THAT(actions.lost[0].reason, HasSubstr("wedged in job 8"));
  EXPECT_EQ(ms, 5250);  // 5 s after the first beat, which showed progress.
}

TEST_F(MembershipTest, AnExecutorThatIsIdleOrMovesIsNotWedged) {
  Join(1, "node-a", "boot-1", 0);
  Join(2, "node-b", "boot-2", 0);
  for (uint64_t n = 1; n < 100; ++n) {
    const Instant now = At(static_cast<int64_t>(n) * 250);
    core_.OnBeat(JoinStreamId(1), Beat(n, n - 1, 8, 8), now);
    core_.OnBeat(JoinStreamId(2), Beat(n, n - 1, n + 1, n), now);
    core_.OnTick(now);
    ASSERT_THAT(core_.TakeActions().lost, IsEmpty());
  }
}

TEST_F(MembershipTest, AnIdleExecutorIsNotWedgedHoweverRareItsBeatsAre) {
  MembershipCore core(MembershipOptions{.lease = absl::Minutes(1)}, Incarnation(1));
  core.OnHello(JoinStreamId(1), Hello("node-a", "boot-1"), At(0));
  core.OnBeat(JoinStreamId(1), Beat(1, 0, 8, 8), At(0));
  core.OnTick(At(30000));
  EXPECT_THAT(core.TakeActions().lost, IsEmpty());
}

TEST_F(MembershipTest, ABeatThatBreaksTheRulesEndsTheStream) {
  const NodeBeat bad[] = {Beat(0, 0), Beat(1, 2), Beat(1, 0, 1, 2)};
  uint64_t stream = 1;
  for (const NodeBeat& beat : bad) {
    Join(stream, "node-a", "boot-1", 0);
    core_.OnBeat(JoinStreamId(stream), beat, At(1));
    const MembershipActions actions = core_.TakeActions();
    EXPECT_THAT(actions.reply, IsEmpty());
    ASSERT_THAT(actions.lost, SizeIs(1));
    ASSERT_THAT(actions.refuse, SizeIs(1));
    EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kInvalidRequest));
    ++stream;
  }
}

TEST_F(MembershipTest, AHelloThatMakesNoSenseIsRefusedWithoutATrace) {
  NodeHello protocol = Hello("node-a", "boot-1");
  protocol.protocol_min = 7;
  protocol.protocol_max = 9;
  core_.OnHello(JoinStreamId(1), protocol, At(0));
  MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_THAT(actions.refuse[0].status,
              StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("7 to 9")));
  for (const NodeHello& hello : {Hello("", "boot-1"), Hello("a b", "boot-1"), Hello("node-a", ""),
                                 Hello(std::string(200, 'a'), "boot-1")}) {
    core_.OnHello(JoinStreamId(2), hello, At(0));
    actions = core_.TakeActions();
    ASSERT_THAT(actions.refuse, SizeIs(1));
    EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kInvalidRequest));
  }
  EXPECT_THAT(core_.List(At(0)), IsEmpty());
}

TEST_F(MembershipTest, ALostNodeStaysListedWithItsReasonUntilItExpiresOrIsRemoved) {
  Join(1, "node-a", "boot-1", 0);
  Join(2, "node-b", "boot-2", 0);
  EXPECT_THAT(core_.Remove(NodeId("node-a")),
              StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("live")));
  core_.OnStreamClosed(JoinStreamId(1), At(1000));
  core_.OnStreamClosed(JoinStreamId(2), At(1000));
  const std::optional<NodeView> view = core_.Find(NodeId("node-a"), At(3000));
  ASSERT_TRUE(view.has_value());
  EXPECT_FALSE(view->live);
  EXPECT_EQ(view->reason, "stream reset");
  EXPECT_EQ(view->lost_for, absl::Seconds(2));
  EXPECT_THAT(core_.Remove(NodeId("node-a")), IsOk());
  EXPECT_THAT(core_.Remove(NodeId("node-a")),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("")));
  EXPECT_EQ(core_.NextWake(), At(601000));
  core_.OnTick(At(600999));
  EXPECT_THAT(core_.List(At(600999)), SizeIs(1));
  core_.OnTick(At(601000));
  EXPECT_THAT(core_.List(At(601000)), IsEmpty());
}

TEST_F(MembershipTest, AFullClusterRefusesNewcomersButAGhostMakesRoom) {
  Join(1, "node-a", "boot-1", 0);
  Join(2, "node-b", "boot-2", 0);
  Join(3, "node-c", "boot-3", 0);
  core_.OnHello(JoinStreamId(4), Hello("node-d", "boot-4"), At(1));
  const MembershipActions actions = core_.TakeActions();
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kOverloaded));
  core_.OnStreamClosed(JoinStreamId(2), At(2));
  (void)core_.TakeActions();
  Join(5, "node-d", "boot-4", 3);
  EXPECT_FALSE(core_.Find(NodeId("node-b"), At(3)).has_value());
}

TEST_F(MembershipTest, ASpentBlockOfIncarnationsIssuesNoMore) {
  options_.incarnations_max = 1;
  MembershipCore core(options_, Incarnation(5));
  core.OnHello(JoinStreamId(1), Hello("node-a", "boot-1"), At(0));
  core.OnHello(JoinStreamId(2), Hello("node-b", "boot-2"), At(0));
  const MembershipActions actions = core.TakeActions();
  EXPECT_THAT(actions.welcome, SizeIs(1));
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(core.List(At(0)), SizeIs(1));
}

// Any order of events: one live incarnation a node, none issued twice, each lost once and before
// its successor is welcomed.
TEST_F(MembershipTest, WhateverHappensAnIncarnationLivesOnceAndIsLostBeforeItsSuccessor) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto pick = [&random](uint64_t n) { return random() % n; };
    MembershipCore core(options_, Incarnation(1));
    std::map<NodeId, Incarnation> live;
    std::map<uint64_t, std::pair<NodeId, uint64_t>> streams;  // To node and last beat.
    std::set<Incarnation> issued;
    uint64_t next_stream = 1;
    int64_t ms = 0;
    for (int event = 0; event < 200; ++event) {
      ms += static_cast<int64_t>(pick(400));
      const Instant now = At(ms);
      const uint64_t stream = next_stream == 1 ? 1 : 1 + pick(next_stream);
      switch (pick(6)) {
        case 0: {
          const NodeHello hello = Hello("node-" + std::to_string(pick(5)),
                                        "boot-" + std::to_string(pick(3)), pick(next_stream + 2));
          core.OnHello(JoinStreamId(next_stream), hello, now);
          ++next_stream;
          break;
        }
        case 1:
          core.OnStreamClosed(JoinStreamId(stream), now);
          break;
        case 2:
          core.OnTick(now);
          ASSERT_GT(core.NextWake(), now);
          break;
        default: {
          const uint64_t number = ++streams[stream].second;
          core.OnBeat(JoinStreamId(stream), Beat(number, pick(number)), now);
        }
      }
      const MembershipActions actions = core.TakeActions();
      for (const auto& lost : actions.lost) {
        ASSERT_EQ(live[lost.node], lost.incarnation);
        live.erase(lost.node);
      }
      for (const auto& welcome : actions.welcome) {
        if (welcome.reconnect) {
          ASSERT_EQ(live[welcome.node], welcome.incarnation);
        } else {
          ASSERT_FALSE(live.contains(welcome.node));
          ASSERT_TRUE(issued.insert(welcome.incarnation).second);
          live[welcome.node] = welcome.incarnation;
        }
        streams[welcome.stream.value()] = {welcome.node, 0};
      }
      ASSERT_EQ(core.live_count(), static_cast<int>(live.size()));
      ASSERT_LE(core.List(now).size(), 3U);
    }
  }
}

}  // namespace
}  // namespace shardline
