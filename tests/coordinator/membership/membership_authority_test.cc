// Terms, copies of a node, and what nodes say of each other.

#include <optional>
#include <set>

#include "base/version.h"
#include "coordinator/membership/membership_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
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

class MembershipAuthorityTest : public ::testing::Test {
 protected:
  MembershipActions Say(uint64_t stream, const NodeHello& hello, int64_t ms) {
    core_.OnHello(JoinStreamId(stream), hello, At(ms));
    return core_.TakeActions();
  }

  // Node a reports `silent` peers in its beat `number`.
  MembershipActions Report(uint64_t number, const std::vector<StagePeer>& silent, int64_t ms) {
    NodeBeat beat{.number = number, .echo = number - 1};
    for (const StagePeer& peer : silent) beat.peers.push_back({peer, absl::Seconds(2)});
    core_.OnBeat(JoinStreamId(1), beat, At(ms));
    return core_.TakeActions();
  }

  void JoinAAndB() {
    ASSERT_THAT(Say(1, Hello("a", "boot-a"), 0).welcome, SizeIs(1));
    ASSERT_THAT(Say(2, Hello("b", "boot-b"), 0).welcome, SizeIs(1));
  }

  const StagePeer a_ = {NodeId("a"), Incarnation(1000)};
  const StagePeer b_ = {NodeId("b"), Incarnation(1001)};
  MembershipOptions options_{.lease = absl::Minutes(1), .term = Term(5)};
  MembershipCore core_{options_, Incarnation(1000)};
};

TEST_F(MembershipAuthorityTest, ANodeThatHasObeyedAHigherTermIsRefusedAndTheLedgerIsOutOfDate) {
  NodeHello hello = Hello("a", "boot-a", 77);
  hello.term_seen = Term(9);
  const MembershipActions actions = Say(1, hello, 0);
  EXPECT_THAT(actions.welcome, IsEmpty());
  ASSERT_THAT(actions.out_of_date, SizeIs(1));
  EXPECT_EQ(actions.out_of_date[0].term_seen, Term(9));
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(actions.refuse[0].status.message(), HasSubstr("term 9"));
  EXPECT_THAT(actions.refuse[0].status.message(), HasSubstr("term 5"));
  // No node is to blame: that is how the node knows that it must not end itself.
  EXPECT_TRUE(FailureDetailOf(actions.refuse[0].status).node.empty());
  EXPECT_EQ(core_.superseded_by(), Term(9));
  EXPECT_THAT(core_.Problems(At(0)), ElementsAre(HasSubstr("--restore")));
}

TEST_F(MembershipAuthorityTest, TheSameHigherTermIsNewsOnce) {
  NodeHello hello = Hello("a", "boot-a");
  hello.term_seen = Term(9);
  EXPECT_THAT(Say(1, hello, 0).out_of_date, SizeIs(1));
  EXPECT_THAT(Say(2, hello, 1).out_of_date, IsEmpty());
  hello.term_seen = Term(10);
  EXPECT_THAT(Say(3, hello, 2).out_of_date, SizeIs(1));
  EXPECT_EQ(core_.superseded_by(), Term(10));
}

TEST_F(MembershipAuthorityTest, ANodeOfThisTermOrAnOlderOneIsWelcome) {
  for (const uint64_t term : {uint64_t{0}, uint64_t{4}, uint64_t{5}}) {
    NodeHello hello = Hello("n" + std::to_string(term), "boot");
    hello.term_seen = Term(term);
    EXPECT_THAT(Say(term + 1, hello, 0).welcome, SizeIs(1));
  }
  EXPECT_FALSE(core_.superseded_by().has_value());
  EXPECT_THAT(core_.Problems(At(0)), IsEmpty());
}

// A snapshot of a machine, started again elsewhere: the same boot and the same life, twice.
TEST_F(MembershipAuthorityTest, ACopyOfARunningNodeReplacesItUnderAFreshIncarnation) {
  ASSERT_THAT(Say(1, Hello("a", "boot-a"), 0).welcome, SizeIs(1));
  NodeHello copy = Hello("a", "boot-a", 1000);
  copy.address = "elsewhere:7070";
  const MembershipActions actions = Say(2, copy, 100);
  ASSERT_THAT(actions.lost, SizeIs(1));
  EXPECT_EQ(actions.lost[0].incarnation, Incarnation(1000));
  ASSERT_THAT(actions.refuse, SizeIs(1));
  EXPECT_EQ(actions.refuse[0].stream, JoinStreamId(1));
  EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kStaleEpoch));
  EXPECT_EQ(FailureDetailOf(actions.refuse[0].status).node, NodeId("a"));
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_FALSE(actions.welcome[0].reconnect);
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1001));
}

TEST_F(MembershipAuthorityTest, TheOriginalOfACopyStaysOutHoweverOftenItComesBack) {
  ASSERT_THAT(Say(1, Hello("a", "boot-a"), 0).welcome, SizeIs(1));
  NodeHello copy = Hello("a", "boot-a", 1000);
  copy.address = "elsewhere:7070";
  ASSERT_THAT(Say(2, copy, 100).welcome, SizeIs(1));
  for (uint64_t stream = 3; stream < 10; ++stream) {
    const MembershipActions actions = Say(stream, Hello("a", "boot-a", 1000), 200);
    EXPECT_THAT(actions.lost, IsEmpty());
    EXPECT_THAT(actions.welcome, IsEmpty());
    ASSERT_THAT(actions.refuse, SizeIs(1));
    EXPECT_THAT(actions.refuse[0].status, FailsWith(FailureKind::kStaleEpoch));
  }
  EXPECT_TRUE(core_.IsLive(NodeId("a"), Incarnation(1001)));
}

// Its welcome was lost on the way: same process, same place, not the life we gave it.
TEST_F(MembershipAuthorityTest, AProcessThatNeverSawItsWelcomeIsNoCopy) {
  ASSERT_THAT(Say(1, Hello("a", "boot-a", 7), 0).welcome, SizeIs(1));
  const MembershipActions actions = Say(2, Hello("a", "boot-a", 7), 100);
  ASSERT_THAT(actions.welcome, SizeIs(1));
  EXPECT_EQ(actions.welcome[0].incarnation, Incarnation(1001));
}

TEST_F(MembershipAuthorityTest, TwoNodesThatSwapAddressesLiveAnewAndKeepTheirNames) {
  JoinAAndB();
  NodeHello a = Hello("a", "boot-a2");
  a.address = "b:7070";
  NodeHello b = Hello("b", "boot-b2");
  b.address = "a:7070";
  EXPECT_THAT(Say(3, a, 10).lost, SizeIs(1));
  EXPECT_THAT(Say(4, b, 11).lost, SizeIs(1));
  EXPECT_EQ(core_.Find(NodeId("a"), At(12))->address, "b:7070");
  EXPECT_TRUE(core_.IsLive(NodeId("a"), Incarnation(1002)));
  EXPECT_TRUE(core_.IsLive(NodeId("b"), Incarnation(1003)));
  EXPECT_EQ(core_.live_count(), 2);
}

TEST_F(MembershipAuthorityTest, AReportOfASilentPeerIsToldOnceAndSuspectedForTenSeconds) {
  JoinAAndB();
  MembershipActions actions = Report(1, {b_}, 1000);
  ASSERT_THAT(actions.silent, SizeIs(1));
  EXPECT_EQ(actions.silent[0].from, a_);
  EXPECT_EQ(actions.silent[0].to, b_);
  EXPECT_THAT(Report(2, {b_}, 1250).silent, IsEmpty());
  EXPECT_THAT(Report(3, {}, 1500).silent, IsEmpty());
  ASSERT_THAT(core_.SuspectLinks(At(11249)), SizeIs(1));
  EXPECT_EQ(core_.SuspectLinks(At(11249))[0].from, a_);
  EXPECT_EQ(core_.SuspectLinks(At(11249))[0].to, b_);
  EXPECT_THAT(core_.Problems(At(2000)), ElementsAre(HasSubstr("a does not hear node b")));
  EXPECT_THAT(core_.SuspectLinks(At(11250)), IsEmpty());
  EXPECT_THAT(core_.Problems(At(11250)), IsEmpty());
  // Both stay what they were: a link is suspected, no node.
  EXPECT_EQ(core_.live_count(), 2);
  EXPECT_THAT(Report(4, {b_}, 12000).silent, SizeIs(1));
}

TEST_F(MembershipAuthorityTest, ReportsOfLivesThatAreOverOrOfOneselfAreNoNews) {
  JoinAAndB();
  const StagePeer older = {NodeId("b"), Incarnation(999)};
  const StagePeer unknown = {NodeId("zzz"), Incarnation(1)};
  EXPECT_THAT(Report(1, {older, unknown, a_}, 1000).silent, IsEmpty());
  EXPECT_THAT(core_.SuspectLinks(At(1000)), IsEmpty());
}

TEST_F(MembershipAuthorityTest, SuspicionEndsWithEitherLife) {
  JoinAAndB();
  (void)Report(1, {b_}, 1000);
  core_.OnStreamClosed(JoinStreamId(2), At(1100));
  EXPECT_THAT(core_.SuspectLinks(At(1100)), IsEmpty());
  ASSERT_THAT(Say(3, Hello("b", "boot-b2"), 1200).welcome, SizeIs(1));
  EXPECT_THAT(core_.SuspectLinks(At(1200)), IsEmpty());
}

}  // namespace
}  // namespace shardline
