// What the coordinator makes of terms, signatures and silent links. The fake nodes take only what
// is signed for them, so every test of the coordinator is one of its signatures too.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/capability.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CoordinatorAuthorityTest : public ::testing::Test {
 protected:
  void StartReady() {
    ASSERT_THAT(cluster_.Start(), IsOk());
    a_.Join(cluster_.port());
    b_.Join(cluster_.port());
    ASSERT_TRUE(cluster_.WaitUntilNodes(2));
    a_.SetAnswer({.tokens = ByteTokens("hello")});
    ASSERT_THAT(cluster_.Load(2), IsOk());
  }

  TestCluster cluster_;
  FakeNode a_{{.id = "node-a"}};
  FakeNode b_{{.id = "node-b"}};
};

TEST_F(CoordinatorAuthorityTest, EachLifeOfANodeGetsAKeyOfItsOwn) {
  StartReady();
  ASSERT_THAT(cluster_.Generate("hi").status, IsOk());
  const v1::OpenRequest for_a = a_.opens().back();
  const v1::OpenRequest for_b = b_.opens().back();
  EXPECT_EQ(for_a.capability().size(), kCapabilityBytes);
  EXPECT_NE(for_a.capability(), for_b.capability());
  EXPECT_NE(for_a.open_seq(), for_b.open_seq());
  // The next life is opened, probed and fenced under its own key, or the model never gets ready.
  a_.Leave();
  a_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilReady());
  EXPECT_THAT(cluster_.Generate("hi").status, IsOk());
}

TEST_F(CoordinatorAuthorityTest, ANodeThatObeyedAHigherTermStopsTheServiceAndTheStatusSaysWhy) {
  StartReady();
  FakeNode c({.id = "node-c"});
  c.SetTermSeen(1000);
  c.Join(cluster_.port());
  ASSERT_TRUE(c.WaitUntil([](const FakeNode& node) { return !node.refusal().ok(); }));
  EXPECT_THAT(c.refusal(), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(c.refusal().message(), HasSubstr("term 1000"));
  EXPECT_TRUE(FailureDetailOf(c.refusal()).node.empty());
  EXPECT_THAT(cluster_.Generate("hi").status, FailsWith(FailureKind::kStaleEpoch));
  const v1::ClusterStatus status = cluster_.Status();
  EXPECT_THAT(status.problems(), ElementsAre(HasSubstr("--restore")));
  c.Leave();
}

TEST_F(CoordinatorAuthorityTest, ALinkThatIsReportedSilentIsAProblemOfTheCluster) {
  StartReady();
  a_.ReportSilent("node-b", b_.incarnation());
  EXPECT_TRUE(cluster_.WaitUntil([](const v1::ClusterStatus& status) {
    return status.problems_size() == 1 &&
           status.problems(0).find("node-a does not hear node node-b") != std::string::npos;
  }));
  // A suspicion of a link takes no node out of service.
  EXPECT_THAT(cluster_.Generate("hi").status, IsOk());
}

}  // namespace
}  // namespace shardline::testing
