// Two link ends over real gRPC on loopback.

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "tests/node/transport/link_ends.h"

namespace shardline {
namespace {

using ::shardline::testing::Arrival;
using ::shardline::testing::ExpectAlive;
using ::shardline::testing::IdentityOf;
using ::shardline::testing::kHiddenDim;
using ::shardline::testing::kPatience;
using ::shardline::testing::Numbered;
using ::shardline::testing::OneRow;
using ::shardline::testing::RawPeer;
using ::shardline::testing::Receiver;
using ::shardline::testing::Sender;
using ::testing::HasSubstr;

TEST(Link, BundlesArriveInOrderAndWhole) {
  Receiver receiver;
  Sender sender(receiver);
  for (uint64_t step = 0; step < 20; ++step) {
    ASSERT_TRUE(sender.link->Send(OneRow(step, 3)).ok());
  }
  for (uint64_t step = 0; step < 20; ++step) {
    const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
    ASSERT_TRUE(arrival.has_value());
    EXPECT_EQ(arrival->from->peer(), (StagePeer{NodeId("a"), Incarnation(1)}));
    EXPECT_EQ(arrival->sequence, step + 1);
    const StageBundle want = OneRow(step, 3);
    ASSERT_EQ(arrival->bundle.rows.size(), 1U);
    EXPECT_EQ(arrival->bundle.rows[0].key, want.rows[0].key);
    EXPECT_EQ(arrival->bundle.rows[0].hop, 1U);
    EXPECT_EQ(arrival->bundle.rows[0].budget, absl::Seconds(9));
    EXPECT_EQ(arrival->bundle.rows[0].flags, kRowWantsLogits);
    EXPECT_EQ(arrival->bundle.rows[0].chain, 77 + step);
    ASSERT_EQ(arrival->bundle.hidden->size(), want.hidden->size());
    EXPECT_EQ(std::memcmp(arrival->bundle.hidden->data(), want.hidden->data(), want.hidden->size()),
              0);
  }
}

TEST(Link, TheSenderStopsAtItsCreditsAndThenRefuses) {
  Receiver receiver({.credit_bundles = 2});
  Sender sender(receiver, MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)}), 3);
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  const std::optional<Arrival> first = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(first.has_value());
  // One more has credit, three may wait.
  ASSERT_TRUE(sender.link->Send(OneRow(1)).ok());
  ASSERT_TRUE(receiver.arrivals.Take(kPatience).has_value());
  for (uint64_t step = 2; step < 5; ++step) ASSERT_TRUE(sender.link->Send(OneRow(step)).ok());
  const absl::Status full = sender.link->Send(OneRow(5));
  EXPECT_EQ(FailureKindOf(full), FailureKind::kOverloaded) << full;
  EXPECT_EQ(receiver.arrivals.size(), 0U);

  // Nothing but a credit lets the third go.
  first->from->Ack(2);
  for (uint64_t sequence = 3; sequence <= 4; ++sequence) {
    const std::optional<Arrival> next = receiver.arrivals.Take(kPatience);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->sequence, sequence);
  }
  EXPECT_EQ(receiver.arrivals.size(), 0U);
}

TEST(Link, AcksAreCumulativeAndComeWithoutBeingAskedFor) {
  Receiver receiver({.credit_bundles = 64, .ack_delay = absl::Milliseconds(1)});
  RawPeer peer(receiver);
  peer.SayHello();
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    ASSERT_TRUE(peer.Write(EncodeBundle(Numbered(sequence))));
    const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
    ASSERT_TRUE(arrival.has_value());
    arrival->from->Ack(sequence);
  }
  uint64_t acked = 0;
  while (acked < 10) {
    const v1::LinkSignal signal = peer.Read();
    ASSERT_EQ(signal.signal_case(), v1::LinkSignal::kAck);
    EXPECT_GT(signal.ack().sequence(), acked);
    acked = signal.ack().sequence();
  }
}

TEST(Link, HalfAWindowIsAcknowledgedAtOnce) {
  // The delay alone would never do it.
  Receiver receiver({.credit_bundles = 4, .ack_delay = absl::Hours(1)});
  RawPeer peer(receiver);
  peer.SayHello();
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    ASSERT_TRUE(peer.Write(EncodeBundle(Numbered(sequence))));
    const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
    ASSERT_TRUE(arrival.has_value());
    arrival->from->Ack(sequence);
  }
  EXPECT_EQ(peer.Read().ack().sequence(), 2U);
}

TEST(Link, ARowFailureTravelsAgainstTheBundles) {
  Receiver receiver;
  Sender sender(receiver);
  ASSERT_TRUE(sender.link->Send(OneRow(7)).ok());
  const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(arrival.has_value());
  const absl::Status why =
      MakeFailure({.kind = FailureKind::kStaleEpoch, .node = NodeId("b")}, "epoch 1 is fenced");
  arrival->from->SendRowFailure({.key = arrival->bundle.rows[0].key, .status = why});
  const std::optional<RowFailure> failure = sender.failures.Take(kPatience);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->key, arrival->bundle.rows[0].key);
  EXPECT_EQ(failure->status, why);
}

TEST(Link, APingIsAnsweredWithItsNonce) {
  Receiver receiver;
  RawPeer peer(receiver);
  peer.SayHello();
  v1::LinkPing ping;
  ping.set_nonce(99);
  ASSERT_TRUE(peer.Write(EncodePing(ping)));
  EXPECT_EQ(peer.Read().pong().nonce(), 99U);
}

TEST(Link, AGeneratedClientSpeaksIt) {
  Receiver receiver;
  const auto stub = v1::Shard::NewStub(
      grpc::CreateChannel(receiver.server->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Link(&context);
  v1::LinkFrame frame;
  *frame.mutable_hello() = MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)});
  ASSERT_TRUE(stream->Write(frame));
  v1::LinkSignal signal;
  ASSERT_TRUE(stream->Read(&signal));
  EXPECT_EQ(signal.welcome().protocol(), 1U);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(EncodeBundle(Numbered(1)).Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  ASSERT_TRUE(frame.ParseFromString(bytes));
  ASSERT_TRUE(stream->Write(frame));
  EXPECT_TRUE(receiver.arrivals.Take(kPatience).has_value());
  context.TryCancel();
}

TEST(Link, AnotherProtocolOrRecipeIsRefusedAndReportedOnce) {
  Receiver receiver;
  v1::LinkHello hello = MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)});
  hello.mutable_protocol()->set_min(90);
  hello.mutable_protocol()->set_max(99);
  Sender future(receiver, hello);
  ASSERT_TRUE(future.link->Send(OneRow(0)).ok());
  std::optional<absl::Status> lost = future.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kIncompatibleRecipe);
  EXPECT_THAT(std::string(lost->message()), HasSubstr("90 to 99"));
  EXPECT_EQ(FailureDetailOf(*lost).node, NodeId("b"));

  LinkIdentity other = IdentityOf("a", 1);
  other.recipe.model_id = ModelId("sha256:a4");
  Sender stranger(receiver, other);
  ASSERT_TRUE(stranger.link->Send(OneRow(0)).ok());
  lost = stranger.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kIncompatibleRecipe);
  EXPECT_THAT(std::string(lost->message()), HasSubstr("sha256:a4"));
  EXPECT_THAT(std::string(lost->message()), HasSubstr("sha256:b8"));

  EXPECT_EQ(future.lost.size(), 0U);
  EXPECT_EQ(receiver.arrivals.size(), 0U);
}

TEST(Link, GarbageEndsTheLinkCleanlyAndTheNodeLivesOn) {
  Receiver receiver;
  const std::string hello_like("\x0A\x7F\x0A", 3);
  for (const std::string& garbage :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(60'000, '\xFF'),
        std::string(1, '\0'), hello_like}) {
    RawPeer peer(receiver);
    ASSERT_TRUE(peer.Write(garbage));
    EXPECT_EQ(FailureKindOf(peer.ExpectRefusal()), FailureKind::kMalformedBundle);
  }
  ExpectAlive(receiver);
}

TEST(Link, ABundleBeforeTheHelloIsRefused) {
  Receiver receiver;
  RawPeer peer(receiver);
  ASSERT_TRUE(peer.Write(EncodeBundle(Numbered(1))));
  EXPECT_EQ(FailureKindOf(peer.ExpectRefusal()), FailureKind::kMalformedBundle);
  EXPECT_EQ(receiver.arrivals.size(), 0U);
  ExpectAlive(receiver);
}

TEST(Link, ABrokenRuleAfterTheHelloEndsTheLink) {
  Receiver receiver;
  {
    RawPeer peer(receiver);
    peer.SayHello();
    ASSERT_TRUE(peer.Write(EncodeBundle(Numbered(2))));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("bundle 2 after 0"));
  }
  {
    RawPeer peer(receiver);
    peer.SayHello();
    const v1::LinkHello hello = MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)});
    ASSERT_TRUE(peer.Write(EncodeHello(hello)));
    EXPECT_THAT(std::string(peer.ExpectRefusal().message()), HasSubstr("second hello"));
  }
  {
    RawPeer peer(receiver);
    peer.SayHello();
    LinkBundle wide = Numbered(1);
    wide.hidden_dim = kHiddenDim / 2;
    wide.rows[0].token_count = 2;
    ASSERT_TRUE(peer.Write(EncodeBundle(wide)));
    EXPECT_EQ(FailureKindOf(peer.ExpectRefusal()), FailureKind::kMalformedBundle);
  }
  EXPECT_EQ(receiver.arrivals.size(), 0U);
  ExpectAlive(receiver);
}

TEST(Link, AnOversizedFrameEndsTheLinkBeforeItIsRead) {
  Receiver receiver({}, {.payload_bytes_max = 1 << 16});
  RawPeer peer(receiver);
  peer.SayHello();
  peer.Write(std::string(1 << 20, 'x'));
  EXPECT_EQ(peer.Read().signal_case(), v1::LinkSignal::SIGNAL_NOT_SET);
  EXPECT_FALSE(peer.Finish().ok());
  ExpectAlive(receiver);
}

TEST(Link, APeerThatIsDoneIsLetGo) {
  Receiver receiver;
  RawPeer peer(receiver);
  peer.SayHello();
  peer.WritesDone();
  EXPECT_EQ(peer.Read().signal_case(), v1::LinkSignal::SIGNAL_NOT_SET);
  EXPECT_TRUE(peer.Finish().ok());
  EXPECT_TRUE(receiver.closed.Take(kPatience).has_value());
}

TEST(Link, ALossIsReportedOnceAndTheNextBundleDialsAgain) {
  Receiver receiver;
  Sender sender(receiver);
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  const std::optional<Arrival> arrival = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(arrival.has_value());
  arrival->from->Close(MakeFailure(FailureKind::kWorkerDeath, "the shard was unloaded"));
  const std::optional<absl::Status> lost = sender.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kWorkerDeath);
  EXPECT_EQ(FailureDetailOf(*lost).node, NodeId("b"));

  // What is sent before the owner has heard of the loss is lost with the rest.
  ASSERT_TRUE(sender.link->Send(OneRow(9)).ok());
  sender.link->HearLoss();
  ASSERT_TRUE(sender.link->Send(OneRow(1)).ok());
  const std::optional<Arrival> again = receiver.arrivals.Take(kPatience);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->sequence, 1U);
  EXPECT_EQ(again->bundle.rows[0].key.step, StepIndex(1));
  EXPECT_EQ(sender.lost.size(), 0U);
  // Answers on the dead link go nowhere.
  arrival->from->Ack(1);
  arrival->from->SendRowFailure({.status = absl::InternalError("late")});
  EXPECT_EQ(sender.failures.size(), 0U);
}

TEST(Link, AServerThatDiesIsAStreamReset) {
  auto receiver = std::make_unique<Receiver>();
  Sender sender(*receiver);
  ASSERT_TRUE(sender.link->Send(OneRow(0)).ok());
  ASSERT_TRUE(receiver->arrivals.Take(kPatience).has_value());
  receiver->server->Shutdown(absl::ZeroDuration());
  const std::optional<absl::Status> lost = sender.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kStreamReset);
  // Dialling a dead address fails the same way.
  sender.link->HearLoss();
  ASSERT_TRUE(sender.link->Send(OneRow(1)).ok());
  const std::optional<absl::Status> again = sender.lost.Take(kPatience);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(FailureKindOf(*again), FailureKind::kStreamReset);
}

TEST(Link, AForgedOpenOrFenceReachesNobody) {
  Receiver receiver;
  const auto stub = v1::Shard::NewStub(
      grpc::CreateChannel(receiver.server->address(), grpc::InsecureChannelCredentials()));
  for (const std::string& capability : {std::string("forged"), std::string("made by us")}) {
    v1::OpenRequest open;
    open.set_capability(capability);
    v1::FenceRequest fence;
    fence.set_capability(capability);
    grpc::ClientContext contexts[2];
    v1::OpenReply opened;
    v1::FenceReply fenced;
    const grpc::Status statuses[] = {stub->Open(&contexts[0], open, &opened),
                                     stub->Fence(&contexts[1], fence, &fenced)};
    const bool is_forged = capability == "forged";
    for (const grpc::Status& status : statuses) {
      EXPECT_EQ(FailureKindOf(FromGrpcStatus(status)),
                is_forged ? FailureKind::kUnauthorised : FailureKind::kNone);
    }
    EXPECT_EQ(receiver.orders, is_forged ? 0 : 2);
  }
}

TEST(Link, ABusyPortIsAClearFailure) {
  Receiver receiver;
  const absl::Status status =
      NodeServer::Start(receiver.server->address(), {}, {}, {}, {}).status();
  EXPECT_EQ(FailureKindOf(status), FailureKind::kInvalidRequest);
  EXPECT_THAT(std::string(status.message()), HasSubstr(receiver.server->address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Address already in use"));
  EXPECT_FALSE(NodeServer::Start("no-such-host.invalid:0", {}, {}, {}, {}).ok());
  EXPECT_FALSE(NodeServer::Start("127.0.0.1", {}, {}, {}, {}).ok());
}

}  // namespace
}  // namespace shardline
