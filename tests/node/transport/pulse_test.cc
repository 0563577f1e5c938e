// Pulses over loopback: a client, a host behind a real server, and what happens to both.

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/mailbox.h"
#include "node/transport/pulse_client.h"
#include "node/transport/pulse_host.h"
#include "proto/wire/grpc_callback_queue.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

const StagePeer kA = {NodeId("a"), Incarnation(1)};
const StagePeer kB = {NodeId("b"), Incarnation(2)};

// Takes beats and says nothing.
class MuteCall : public grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat> {
 public:
  MuteCall() { StartRead(&beat_); }
  void OnReadDone(bool ok) override {
    if (ok) return StartRead(&beat_);
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  v1::PeerBeat beat_;
};

// Node b: a server whose pulses are answered by a PulseHost, or by nobody.
class Host : public v1::Shard::WithCallbackMethod_Pulse<v1::Shard::Service> {
 public:
  Host()
      : pulses_({.beat = absl::Milliseconds(20)},
                {.self =
                     [this] {
                       return StagePeer{kB.node, Incarnation(life)};
                     },
                 .progress =
                     [this] {
                       return PulseProgress{jobs_started, 0};
                     }},
                SystemClock()) {
    Start();
  }
  ~Host() override { Stop(); }

  grpc::ServerBidiReactor<v1::PeerBeat, v1::PeerBeat>* Pulse(
      grpc::CallbackServerContext* /*context*/) override {
    ++dials;
    if (mute) return new MuteCall;
    return pulses_.Accept();
  }

  void Start() {
    KeepCallbackQueue();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_),
                             grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void Stop() {
    server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
    server_->Wait();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  const PulseHost& pulses() const { return pulses_; }

  std::atomic<bool> mute = false;
  std::atomic<uint64_t> life = kB.incarnation.value();
  std::atomic<uint64_t> jobs_started = 0;
  std::atomic<int> dials = 0;

 private:
  PulseHost pulses_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class PulseTest : public ::testing::Test {
 protected:
  void Watch(const PulseOptions& options) {
    PulseClientEvents events;
    events.self = [] { return kA; };
    events.progress = [this] {
      ++beats_;
      return PulseProgress{};
    };
    events.on_lost = [this](const StagePeer& peer, const absl::Status& reason) {
      EXPECT_EQ(peer, kB);
      (void)lost_.TryPost(reason);
    };
    events.on_recovered = [this](const StagePeer& peer) { (void)recovered_.TryPost(peer); };
    client_ = std::make_unique<PulseClient>(options, std::move(events), SystemClock(), &calls_);
    client_->Want(kB, host_.address());
  }

  // Until so many beats were due: later than any loss that they could show.
  void AwaitBeats(int count) {
    const int until = beats_ + count;
    while (beats_ < until) std::this_thread::yield();
  }

  void TearDown() override {
    client_.reset();
    EXPECT_TRUE(calls_.AwaitZero(kPatience));
  }

  // Losses only by what the sockets say, however slow the machine is.
  const PulseOptions patient_{
      .beat = absl::Milliseconds(20), .lease = absl::Minutes(1), .wedge_timeout = absl::Minutes(1)};

  Host host_;
  CallCounter calls_;
  std::atomic<int> beats_ = 0;
  Mailbox<absl::Status> lost_{64};
  Mailbox<StagePeer> recovered_{64};
  std::unique_ptr<PulseClient> client_;
};

TEST_F(PulseTest, APeerThatAnswersIsHeardOnOneConnection) {
  Watch(patient_);
  AwaitBeats(20);
  EXPECT_EQ(host_.dials, 1);
  EXPECT_TRUE(client_->Silent().empty());
  EXPECT_TRUE(host_.pulses().Silent().empty());
  EXPECT_EQ(lost_.size(), 0U);
}

TEST_F(PulseTest, AServerThatGoesIsNoticedWithoutALeaseAndAgainWhenItIsBack) {
  Watch(patient_);
  AwaitBeats(5);
  host_.Stop();
  const std::optional<absl::Status> lost = lost_.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  const FailureDetail detail = FailureDetailOf(*lost);
  EXPECT_EQ(detail.kind, FailureKind::kHeartbeatLost);
  EXPECT_EQ(detail.node, kB.node);
  EXPECT_EQ(detail.reporter, kA.node);
  EXPECT_EQ(client_->Silent().size(), 1U);
  host_.Start();
  EXPECT_EQ(recovered_.Take(kPatience), std::optional<StagePeer>(kB));
  EXPECT_EQ(lost_.size(), 0U);
}

TEST_F(PulseTest, APeerThatHearsAndSaysNothingIsLostByTheLease) {
  host_.mute = true;
  Watch({.beat = absl::Milliseconds(5),
         .lease = absl::Milliseconds(60),
         .wedge_timeout = absl::Minutes(1)});
  const std::optional<absl::Status> lost = lost_.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(FailureKindOf(*lost), FailureKind::kHeartbeatLost);
  EXPECT_THAT(std::string(lost->message()), HasSubstr("no answer for"));
  host_.mute = false;
  EXPECT_EQ(recovered_.Take(kPatience), std::optional<StagePeer>(kB));
}

TEST_F(PulseTest, ANewLifeOfThePeerIsNotTakenForTheOldOne) {
  host_.life = kB.incarnation.value() + 1;
  Watch(patient_);
  const std::optional<absl::Status> lost = lost_.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  EXPECT_THAT(std::string(lost->message()), HasSubstr("incarnation 2 of b is over"));
}

TEST_F(PulseTest, AWedgedDeviceIsTheNodesOwnFault) {
  host_.jobs_started = 1;
  Watch({.beat = absl::Milliseconds(5),
         .lease = absl::Minutes(1),
         .wedge_timeout = absl::Milliseconds(60)});
  const std::optional<absl::Status> lost = lost_.Take(kPatience);
  ASSERT_TRUE(lost.has_value());
  const FailureDetail detail = FailureDetailOf(*lost);
  EXPECT_EQ(detail.kind, FailureKind::kDeviceLost);
  EXPECT_EQ(detail.node, kB.node);
  EXPECT_TRUE(detail.reporter.empty());
}

TEST_F(PulseTest, NobodyNeedsToListenForAPeerThatIsHeardAgain) {
  PulseClientEvents events;
  events.self = [] { return kA; };
  events.progress = [] { return PulseProgress{}; };
  events.on_lost = [this](const StagePeer&, const absl::Status& reason) {
    (void)lost_.TryPost(reason);
  };
  host_.Stop();
  client_ = std::make_unique<PulseClient>(patient_, std::move(events), SystemClock(), &calls_);
  client_->Want(kB, host_.address());
  ASSERT_TRUE(lost_.Take(kPatience).has_value());
  EXPECT_EQ(client_->Silent().size(), 1U);
  host_.Start();
  while (!client_->Silent().empty()) std::this_thread::yield();
}

TEST_F(PulseTest, APeerThatIsNotWantedAnyMoreIsNotMissed) {
  Watch(patient_);
  AwaitBeats(3);
  client_->Drop(kB);
  host_.Stop();
  client_.reset();
  EXPECT_EQ(lost_.size(), 0U);
}

}  // namespace
}  // namespace shardline
