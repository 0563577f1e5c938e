#include "node/transport/coordinator_client.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/mailbox.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/join.grpc.pb.h"

namespace shardline {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

using JoinStream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>;

// A coordinator that does what the test says with each stream.
class FakeCoordinator : public v1::Coordinator::Service {
 public:
  using Script = std::function<void(int visit, JoinStream* stream)>;

  explicit FakeCoordinator(Script script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }

  ~FakeCoordinator() override {
    server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
    server_->Wait();
  }

  grpc::Status Join(grpc::ServerContext* /*context*/, JoinStream* stream) override {
    script_(visits_++, stream);
    return grpc::Status::OK;
  }

  const std::string& address() const { return address_; }

 private:
  const Script script_;
  std::atomic<int> visits_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

void Welcome(JoinStream* stream, uint64_t incarnation, int64_t lease_ms = 60'000,
             uint64_t term = 5) {
  v1::CoordinatorMessage message;
  message.mutable_welcome()->set_term(term);
  message.mutable_welcome()->set_incarnation(incarnation);
  message.mutable_welcome()->set_heartbeat_ms(10);
  message.mutable_welcome()->set_lease_ms(lease_ms);
  stream->Write(message);
}

struct Client {
  explicit Client(const std::string& address) {
    CoordinatorEvents events;
    events.hello = [this] {
      v1::NodeHello hello;
      hello.set_node_id("a");
      hello.set_incarnation(incarnation);
      return hello;
    };
    events.heartbeat = [] {
      v1::Heartbeat beat;
      beat.set_jobs_done(42);
      return beat;
    };
    events.on_welcome = [this](const v1::NodeWelcome& welcome) {
      incarnation = welcome.incarnation();
      return welcome.term() < 5 ? MakeFailure(FailureKind::kStaleEpoch, "an old term")
                                : absl::OkStatus();
    };
    events.on_heartbeat = [this](const v1::HeartbeatReply& r) { (void)replies.TryPost(r); };
    events.on_replaced = [this](const absl::Status& status) { (void)replaced.TryPost(status); };
    events.on_load = [this](const v1::LoadShard& load) { EXPECT_TRUE(loads.TryPost(load)); };
    events.on_unload = [this](const v1::UnloadShard& u) { EXPECT_TRUE(unloads.TryPost(u)); };
    events.on_lost = [this](const absl::Status& status) { (void)lost.TryPost(status); };
    client = std::make_unique<CoordinatorClient>(
        CoordinatorClientOptions{.address = address,
                                 .pause_min = absl::Milliseconds(1),
                                 .pause_max = absl::Milliseconds(2)},
        std::move(events));
  }

  std::atomic<uint64_t> incarnation = 0;
  Mailbox<v1::LoadShard> loads{16};
  Mailbox<v1::UnloadShard> unloads{16};
  Mailbox<absl::Status> lost{1024};
  Mailbox<absl::Status> replaced{16};
  Mailbox<v1::HeartbeatReply> replies{16};
  std::unique_ptr<CoordinatorClient> client;
};

TEST(CoordinatorClient, ItSaysHelloThenBeatsAndEchoesTheReplies) {
  Mailbox<v1::NodeMessage> heard(1024);
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    v1::NodeMessage message;
    while (stream->Read(&message)) {
      if (message.has_hello()) Welcome(stream, 5);
      if (message.has_heartbeat()) {
        v1::CoordinatorMessage reply;
        reply.mutable_heartbeat()->set_number(message.heartbeat().number());
        stream->Write(reply);
      }
      (void)heard.TryPost(message);
    }
  });
  Client client(coordinator.address());
  std::optional<v1::NodeMessage> message = heard.Take(kPatience);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->hello().node_id(), "a");
  EXPECT_EQ(message->hello().incarnation(), 0U);
  uint64_t number = 0;
  uint64_t echo = 0;
  while (echo < 3) {
    message = heard.Take(kPatience);
    ASSERT_TRUE(message.has_value());
    ASSERT_TRUE(message->has_heartbeat());
    EXPECT_EQ(message->heartbeat().number(), ++number);
    EXPECT_EQ(message->heartbeat().jobs_done(), 42U);
    EXPECT_GE(message->heartbeat().echo(), echo);
    EXPECT_LT(message->heartbeat().echo(), number);
    echo = message->heartbeat().echo();
  }
}

TEST(CoordinatorClient, AfterAnEndItComesBackAsTheSameIncarnation) {
  Mailbox<v1::NodeHello> hellos(64);
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    v1::NodeMessage message;
    if (stream->Read(&message)) (void)hellos.TryPost(message.hello());
    Welcome(stream, 5);
  });
  Client client(coordinator.address());
  ASSERT_EQ(hellos.Take(kPatience)->incarnation(), 0U);
  ASSERT_TRUE(client.lost.Take(kPatience).has_value());
  EXPECT_EQ(hellos.Take(kPatience)->incarnation(), 5U);
}

TEST(CoordinatorClient, ASilentCoordinatorIsDialledAgain) {
  Mailbox<int> visits(64);
  FakeCoordinator coordinator([&](int visit, JoinStream* stream) {
    v1::NodeMessage message;
    stream->Read(&message);
    Welcome(stream, 5, /*lease_ms=*/30);
    (void)visits.TryPost(visit);
    while (stream->Read(&message)) {
    }
  });
  Client client(coordinator.address());
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(0));
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(1));
  EXPECT_EQ(client.unloads.size(), 0U);
}

TEST(CoordinatorClient, CommandsAndReportsGoThrough) {
  Mailbox<v1::ShardReport> reports(64);
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    v1::NodeMessage message;
    stream->Read(&message);
    Welcome(stream, 5);
    v1::CoordinatorMessage command;
    command.mutable_load()->set_plan_epoch(8);
    command.mutable_load()->set_manifest(std::string(5 << 20, 'm'));
    stream->Write(command);
    command.mutable_unload()->set_plan_epoch(9);
    stream->Write(command);
    while (stream->Read(&message)) {
      if (message.has_shard()) (void)reports.TryPost(message.shard());
    }
  });
  Client client(coordinator.address());
  EXPECT_EQ(client.loads.Take(kPatience)->plan_epoch(), 8U);
  EXPECT_EQ(client.unloads.Take(kPatience)->plan_epoch(), 9U);
  v1::ShardReport report;
  report.set_state(v1::SHARD_STATE_LOADED);
  client.client->Report(report);
  EXPECT_EQ(reports.Take(kPatience)->state(), v1::SHARD_STATE_LOADED);
}

TEST(CoordinatorClient, ARefusalIsTheReasonOfTheLoss) {
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    v1::NodeMessage message;
    stream->Read(&message);
    v1::CoordinatorMessage refusal;
    *refusal.mutable_refusal() =
        ToProto(MakeFailure(FailureKind::kIncompatibleRecipe, "protocol 1 to 1, not 2 to 3"));
    stream->Write(refusal);
  });
  Client client(coordinator.address());
  const std::optional<absl::Status> lost = client.lost.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kIncompatibleRecipe);
}

void Refuse(JoinStream* stream, const FailureDetail& detail) {
  v1::CoordinatorMessage refusal;
  *refusal.mutable_refusal() = ToProto(MakeFailure(detail, "refused"));
  stream->Write(refusal);
}

TEST(CoordinatorClient, ANodeWhoseIdIsTakenSaysSoOnceAndDialsNoMore) {
  std::atomic<int> visits = 0;
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    ++visits;
    v1::NodeMessage message;
    stream->Read(&message);
    Welcome(stream, 5);
    Refuse(stream, {.kind = FailureKind::kStaleEpoch, .node = NodeId("a")});
  });
  Client client(coordinator.address());
  ASSERT_TRUE(client.replaced.Take(kPatience).has_value());
  client.client.reset();
  EXPECT_EQ(visits, 1);
  EXPECT_EQ(client.replaced.size(), 0U);
}

TEST(CoordinatorClient, ACoordinatorWithAnOldLedgerIsDialledOnSinceItMayBeRestored) {
  Mailbox<int> visits(64);
  FakeCoordinator coordinator([&](int visit, JoinStream* stream) {
    (void)visits.TryPost(visit);
    v1::NodeMessage message;
    stream->Read(&message);
    Refuse(stream, {.kind = FailureKind::kStaleEpoch});
  });
  Client client(coordinator.address());
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(0));
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(1));
  EXPECT_EQ(client.replaced.size(), 0U);
}

TEST(CoordinatorClient, AWelcomeThatIsNotTakenIsNoWelcome) {
  Mailbox<int> visits(64);
  std::atomic<int> beats = 0;
  FakeCoordinator coordinator([&](int visit, JoinStream* stream) {
    (void)visits.TryPost(visit);
    v1::NodeMessage message;
    stream->Read(&message);
    Welcome(stream, 5, /*lease_ms=*/60'000, /*term=*/4);
    while (stream->Read(&message)) {
      if (message.has_heartbeat()) ++beats;
    }
  });
  Client client(coordinator.address());
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(0));
  EXPECT_EQ(visits.Take(kPatience), std::optional<int>(1));
  EXPECT_EQ(FailureKindOf(client.lost.Take(kPatience).value()), FailureKind::kStaleEpoch);
  EXPECT_EQ(beats, 0);
}

TEST(CoordinatorClient, WhatAReplySaysOfTheAttemptsIsHandedOn) {
  FakeCoordinator coordinator([&](int, JoinStream* stream) {
    v1::NodeMessage message;
    stream->Read(&message);
    Welcome(stream, 5);
    while (stream->Read(&message)) {
      v1::CoordinatorMessage reply;
      reply.mutable_heartbeat()->set_number(message.heartbeat().number());
      reply.mutable_heartbeat()->set_floor(40);
      reply.mutable_heartbeat()->set_as_of(8);
      reply.mutable_heartbeat()->add_live()->set_session(41);
      stream->Write(reply);
    }
  });
  Client client(coordinator.address());
  const std::optional<v1::HeartbeatReply> reply = client.replies.Take(kPatience);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->floor(), 40U);
  EXPECT_EQ(reply->as_of(), 8U);
  ASSERT_EQ(reply->live_size(), 1);
  EXPECT_EQ(reply->live(0).session(), 41U);
}

TEST(CoordinatorClient, NobodyThereIsNoReasonToStopTrying) {
  Client client("127.0.0.1:1");
  EXPECT_TRUE(client.lost.Take(kPatience).has_value());
  EXPECT_TRUE(client.lost.Take(kPatience).has_value());
}

}  // namespace
}  // namespace shardline
