// What is said ahead of bundles, over real gRPC on loopback.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "tests/node/transport/link_ends.h"

namespace shardline {
namespace {

using ::shardline::testing::Arrival;
using ::shardline::testing::ExpectAlive;
using ::shardline::testing::kPatience;
using ::shardline::testing::Numbered;
using ::shardline::testing::OneRow;
using ::shardline::testing::RawPeer;
using ::shardline::testing::Receiver;
using ::shardline::testing::Sender;
using ::testing::HasSubstr;

// Sends bundle `step` and waits for it: afterwards the link is open and idle.
void SendOne(Sender& sender, Receiver& receiver, uint64_t step) {
  ASSERT_TRUE(sender.link->Send(OneRow(step)).ok());
  const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->bundle.rows.at(0).key.step, StepIndex(step));
}

TEST(LinkPlan, ComesAheadOfTheBundleItIsAbout) {
  Receiver receiver;
  Sender sender(receiver);
  ASSERT_NO_FATAL_FAILURE(SendOne(sender, receiver, 0));
  std::vector<BundleRow> rows = OneRow(1, 3).rows;
  rows[0].rejected = 2;
  sender.link->SendPlan(rows);
  const std::optional<std::shared_ptr<LinkHandle>> link = receiver.plans.Take(kPatience);
  ASSERT_TRUE(link.has_value());
  const std::vector<BundleRow> plan = (*link)->TakePlan();
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].key, rows[0].key);
  EXPECT_EQ(plan[0].token_count, 3);
  EXPECT_EQ(plan[0].hop, 1U);
  EXPECT_EQ(plan[0].flags, kRowWantsLogits);
  EXPECT_EQ(plan[0].rejected, 2);
  EXPECT_TRUE((*link)->TakePlan().empty()) << "it is taken once";
  ASSERT_NO_FATAL_FAILURE(SendOne(sender, receiver, 1));
}

TEST(LinkPlan, IsNeverSentToAPeerThatTakesNone) {
  Receiver receiver({}, {}, /*takes_plans=*/false);
  Sender sender(receiver);
  for (uint64_t step = 0; step < 10; ++step) {
    ASSERT_NO_FATAL_FAILURE(SendOne(sender, receiver, step));
    sender.link->SendPlan(OneRow(step + 1).rows);
  }
  EXPECT_EQ(sender.lost.size(), 0U);
  EXPECT_EQ(receiver.plans.size(), 0U);
}

TEST(LinkPlan, APeerSaysInItsWelcomeWhetherItTakesThem) {
  for (const bool takes_plans : {false, true}) {
    Receiver receiver({}, {}, takes_plans);
    RawPeer peer(receiver);
    const v1::LinkHello hello =
        MakeHello(testing::IdentityOf("a", 1), {NodeId("b"), Incarnation(2)});
    EXPECT_EQ(hello.features(), kFeaturePlans);
    ASSERT_TRUE(peer.Write(EncodeHello(hello)));
    EXPECT_EQ(peer.Read().welcome().features(), takes_plans ? kFeaturePlans : 0);
  }
}

// As by a node from before there were any.
TEST(LinkPlan, IsRefusedByAPeerThatTakesNone) {
  Receiver receiver({}, {}, /*takes_plans=*/false);
  RawPeer peer(receiver);
  peer.SayHello();
  ASSERT_TRUE(peer.Write(EncodePlan({.rows = ToLinkRows(OneRow(1).rows)})));
  EXPECT_EQ(FailureKindOf(peer.ExpectRefusal()), FailureKind::kMalformedBundle);
  ExpectAlive(receiver);
}

TEST(LinkPlan, TakesNoCredit) {
  Receiver receiver({.credit_bundles = 1});
  Sender sender(receiver);
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  const std::optional<Arrival> first = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(first.has_value());
  sender.link->SendPlan(OneRow(1).rows);
  EXPECT_TRUE(receiver.plans.Take(kPatience).has_value()) << "the credit is used up";
  // The bundle itself waits for it, and a plan behind it would come too early.
  ASSERT_TRUE(sender.link->Send(OneRow(1)).ok());
  sender.link->SendPlan(OneRow(2).rows);
  first->from->Ack(1);
  ASSERT_TRUE(receiver.arrivals.Take(kPatience).has_value());
}

// However many are sent, one waits for the strand.
TEST(LinkPlan, AFloodOfThemCostsOneEvent) {
  Receiver receiver;
  RawPeer peer(receiver);
  peer.SayHello();
  for (uint64_t step = 1; step <= 500; ++step) {
    ASSERT_TRUE(peer.Write(EncodePlan({.rows = ToLinkRows(OneRow(step).rows)})));
  }
  ASSERT_TRUE(peer.Write(EncodeBundle(Numbered(1))));
  ASSERT_TRUE(receiver.arrivals.Take(kPatience).has_value());
  ASSERT_EQ(receiver.plans.size(), 1U);
  const std::shared_ptr<LinkHandle> link = *receiver.plans.Take(kPatience);
  EXPECT_EQ(link->TakePlan().at(0).key.step, StepIndex(500)) << "the newest";
}

TEST(LinkPlan, BeforeAHelloIsRefused) {
  Receiver receiver;
  RawPeer peer(receiver);
  ASSERT_TRUE(peer.Write(EncodePlan({.rows = ToLinkRows(OneRow(1).rows)})));
  const absl::Status refusal = peer.ExpectRefusal();
  EXPECT_EQ(FailureKindOf(refusal), FailureKind::kMalformedBundle);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("no hello"));
  ExpectAlive(receiver);
}

}  // namespace
}  // namespace shardline
