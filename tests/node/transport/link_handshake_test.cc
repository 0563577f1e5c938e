#include "node/transport/link_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/failure.h"
#include "base/version.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

LinkIdentity Self() {
  return {.node = NodeId("node-b"),
          .incarnation = Incarnation(4),
          .recipe = {.model_id = ModelId("sha256:b8"),
                     .numerics_id = NumericsId("cpu/f32"),
                     .plan_epoch = PlanEpoch(3)},
          .hidden_dim = 8};
}

v1::LinkHello GoodHello() {
  LinkIdentity peer = Self();
  peer.node = NodeId("node-a");
  peer.incarnation = Incarnation(2);
  return MakeHello(peer, {NodeId("node-b"), Incarnation(4)});
}

std::string RefusalOf(const v1::LinkHello& hello, FailureKind kind) {
  const absl::Status status = CheckHello(hello, Self()).status();
  EXPECT_EQ(FailureKindOf(status), kind) << status;
  return std::string(status.message());
}

TEST(LinkHandshake, AGoodHelloNamesItsSender) {
  const absl::StatusOr<LinkAgreement> agreement = CheckHello(GoodHello(), Self());
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->peer, (StagePeer{NodeId("node-a"), Incarnation(2)}));
  EXPECT_EQ(agreement->protocol, kProtocolVersionMax);
}

TEST(LinkHandshake, ANewerPeerThatStillSpeaksOursIsWelcome) {
  v1::LinkHello hello = GoodHello();
  hello.mutable_protocol()->set_max(kProtocolVersionMax + 1);
  hello.set_features(~0ULL);
  const absl::StatusOr<LinkAgreement> agreement = CheckHello(hello, Self());
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->protocol, kProtocolVersionMax);
}

TEST(LinkHandshake, NoCommonProtocolIsRefusedWithBothRanges) {
  v1::LinkHello hello = GoodHello();
  hello.mutable_protocol()->set_min(kProtocolVersionMax + 1);
  hello.mutable_protocol()->set_max(kProtocolVersionMax + 7);
  // What else a hello of another version says must not matter.
  hello.set_node_id("");
  const std::string why = RefusalOf(hello, FailureKind::kIncompatibleRecipe);
  EXPECT_THAT(why, HasSubstr(std::to_string(kProtocolVersionMax + 7)));
  EXPECT_THAT(why, HasSubstr(std::to_string(kProtocolVersionMax)));

  hello.mutable_protocol()->set_min(0);
  hello.mutable_protocol()->set_max(kProtocolVersionMin - 1);
  RefusalOf(hello, FailureKind::kIncompatibleRecipe);
  hello.mutable_protocol()->set_min(9);
  hello.mutable_protocol()->set_max(1);
  RefusalOf(hello, FailureKind::kIncompatibleRecipe);
}

TEST(LinkHandshake, AnotherRecipeIsRefusedWithBothDigests) {
  v1::LinkHello hello = GoodHello();
  hello.mutable_recipe()->set_model_id("sha256:a4");
  std::string why = RefusalOf(hello, FailureKind::kIncompatibleRecipe);
  EXPECT_THAT(why, HasSubstr("sha256:a4"));
  EXPECT_THAT(why, HasSubstr("sha256:b8"));

  hello = GoodHello();
  hello.mutable_recipe()->set_numerics_id("cpu/f16");
  why = RefusalOf(hello, FailureKind::kIncompatibleRecipe);
  EXPECT_THAT(why, HasSubstr("cpu/f16"));
  EXPECT_THAT(why, HasSubstr("cpu/f32"));

  hello = GoodHello();
  hello.mutable_recipe()->set_plan_epoch(2);
  RefusalOf(hello, FailureKind::kIncompatibleRecipe);
}

TEST(LinkHandshake, AHelloForSomebodyElseIsRefused) {
  v1::LinkHello hello = GoodHello();
  hello.set_peer_incarnation(3);
  EXPECT_THAT(RefusalOf(hello, FailureKind::kWorkerDeath), HasSubstr("incarnation 4"));
  hello = GoodHello();
  hello.set_peer_node_id("node-c");
  EXPECT_THAT(RefusalOf(hello, FailureKind::kWorkerDeath), HasSubstr("node-c"));
}

TEST(LinkHandshake, ANodeIdThatCannotBeOneIsRefused) {
  v1::LinkHello hello = GoodHello();
  hello.set_node_id("a\nb");
  RefusalOf(hello, FailureKind::kMalformedBundle);
}

TEST(LinkHandshake, ANodeWithoutAShardLinksWithNobody) {
  const absl::Status status = CheckHello(GoodHello(), std::nullopt).status();
  EXPECT_EQ(FailureKindOf(status), FailureKind::kIncompatibleRecipe);
}

}  // namespace
}  // namespace shardline
