// What a link does when it breaks: dials again, asks, hears answers.

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "tests/node/transport/link_ends.h"

namespace shardline {
namespace {

using ::shardline::testing::ExpectAlive;
using ::shardline::testing::IdentityOf;
using ::shardline::testing::kPatience;
using ::shardline::testing::OneRow;
using ::shardline::testing::RawPeer;
using ::shardline::testing::Receiver;
using ::shardline::testing::Sender;
using ::testing::HasSubstr;

TEST(LinkResume, ADialConnectsWithNothingToSendAndEachConnectionHasAHigherNumber) {
  Receiver receiver;
  Sender sender(receiver);
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    sender.link->Dial();
    ASSERT_TRUE(sender.ups.Take(kPatience).has_value());
    const auto link = receiver.opened.Take(kPatience);
    ASSERT_TRUE(link.has_value());
    EXPECT_GT((*link)->connection(), last);
    last = (*link)->connection();
    sender.link->Dial();  // It stands: nothing.
    // A break of an idle stream is noticed without anything to send.
    (*link)->Close(MakeFailure(FailureKind::kStreamReset, "cut"));
    ASSERT_TRUE(sender.lost.Take(kPatience).has_value());
    sender.link->HearLoss();
  }
  EXPECT_EQ(receiver.opened.size(), 0U);
}

TEST(LinkResume, AQuestionGoesAheadOfBundlesAndItsAnswerComesBack) {
  Receiver receiver({.credit_bundles = 1});
  Sender sender(receiver);
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  ASSERT_TRUE(receiver.arrivals.Take(kPatience).has_value());
  ASSERT_TRUE(sender.link->Send(OneRow(1)).ok());  // Waits for credit.
  const std::vector<InspectRow> rows = {{.key = {SessionId(5), Epoch(1)}},
                                        {.key = {SessionId(6), Epoch(2)}}};
  sender.link->Inspect(rows);
  const auto asked = receiver.inspects.Take(kPatience);
  ASSERT_TRUE(asked.has_value());
  ASSERT_EQ(asked->second.size(), 2U);
  EXPECT_EQ(asked->second[1].key, rows[1].key);
  EXPECT_EQ(receiver.arrivals.size(), 0U);
  asked->first->SendStatus(
      {{.key = rows[0].key, .step_next = StepIndex(1), .chain = ~uint64_t{0}},
       {.key = rows[1].key, .failure = MakeFailure(FailureKind::kStaleEpoch, "fenced")}});
  const auto answer = sender.statuses.Take(kPatience);
  ASSERT_TRUE(answer.has_value());
  ASSERT_EQ(answer->size(), 2U);
  EXPECT_EQ((*answer)[0].key, rows[0].key);
  EXPECT_EQ((*answer)[0].step_next, StepIndex(1));
  EXPECT_EQ((*answer)[0].chain, ~uint64_t{0});
  EXPECT_TRUE((*answer)[0].failure.ok());
  EXPECT_EQ(FailureKindOf((*answer)[1].failure), FailureKind::kStaleEpoch);
}

TEST(LinkResume, ManyAttemptsAreAskedAboutInFramesOfTheirLimit) {
  Receiver receiver;
  Sender sender(receiver);
  sender.link->Dial();
  ASSERT_TRUE(sender.ups.Take(kPatience).has_value());
  std::vector<InspectRow> rows(kInspectRowsMax + 1);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].key = {SessionId(~uint64_t{0} - i), Epoch(1)};
  sender.link->Inspect(rows);
  size_t asked = 0;
  while (asked < rows.size()) {
    const auto inspect = receiver.inspects.Take(kPatience);
    ASSERT_TRUE(inspect.has_value());
    ASSERT_LE(inspect->second.size(), static_cast<size_t>(kInspectRowsMax));
    for (const InspectRow& row : inspect->second) EXPECT_EQ(row.key, rows[asked++].key);
  }
}

TEST(LinkResume, NothingIsSentBeforeTheWelcomeAndADialWithoutOneEnds) {
  Receiver receiver;
  receiver.welcomes = false;
  Sender sender(receiver, MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)}), 64,
                absl::Milliseconds(50));
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  const std::optional<absl::Status> lost = sender.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kStreamReset);
  EXPECT_THAT(std::string(lost->message()), HasSubstr("no welcome in 50ms"));
  EXPECT_EQ(receiver.arrivals.size(), 0U);
  EXPECT_EQ(sender.ups.size(), 0U);
}

TEST(LinkResume, ADroppedStreamIsReportedLikeABrokenOne) {
  Receiver receiver;
  Sender sender(receiver);
  sender.link->Drop();  // None stands.
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  ASSERT_TRUE(receiver.arrivals.Take(kPatience).has_value());
  sender.link->Drop();
  ASSERT_TRUE(sender.lost.Take(kPatience).has_value());
  EXPECT_TRUE(receiver.closed.Take(kPatience).has_value());
  EXPECT_EQ(sender.lost.size(), 0U);
}

TEST(LinkResume, HostileQuestionsEndTheLink) {
  Receiver receiver;
  v1::LinkInspect inspect;
  for (int i = 0; i <= kInspectRowsMax; ++i) inspect.add_rows()->set_session(1);
  v1::LinkFrame frame;
  *frame.mutable_inspect() = inspect;
  {
    RawPeer peer(receiver);
    peer.SayHello();
    ASSERT_TRUE(peer.Write(frame.SerializeAsString()));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("1025 rows"));
  }
  {
    RawPeer peer(receiver);
    ASSERT_TRUE(peer.Write(EncodeInspect({})));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("no hello"));
  }
  {
    RawPeer peer(receiver);
    peer.SayHello();
    for (int i = 0; i <= 64; ++i) ASSERT_TRUE(peer.Write(EncodeInspect({})));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("too many"));
  }
  {
    RawPeer peer(receiver);
    ASSERT_TRUE(
        peer.Write(EncodeHello(MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)}, 0))));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("connection"));
  }
  ExpectAlive(receiver);
}

}  // namespace
}  // namespace shardline
