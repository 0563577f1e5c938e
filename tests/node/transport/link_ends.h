#pragma once

// The two ends of a link over real gRPC on loopback, and a peer that writes what it likes.

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/failure.h"
#include "base/mailbox.h"
#include "node/transport/link_client.h"
#include "node/transport/node_server.h"
#include "node/transport/stage_conversion.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/link.grpc.pb.h"

namespace shardline::testing {

inline constexpr int32_t kHiddenDim = 8;
// Long enough for any machine; no test waits for it to pass.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

inline LinkIdentity IdentityOf(const std::string& node, uint64_t incarnation) {
  return {.node = NodeId(node),
          .incarnation = Incarnation(incarnation),
          .recipe = {.model_id = ModelId("sha256:b8"),
                     .numerics_id = NumericsId("cpu"),
                     .plan_epoch = PlanEpoch(1)},
          .hidden_dim = kHiddenDim};
}

inline StageBundle OneRow(uint64_t step, int32_t token_count = 1) {
  StageBundle bundle;
  bundle.rows.push_back({.key = {{SessionId(5), Epoch(1)}, StepIndex(step)},
                         .position = 0,
                         .token_count = token_count,
                         .hop = 1,
                         .budget = absl::Seconds(9),
                         .flags = kRowWantsLogits,
                         .chain = 77 + step});
  std::shared_ptr<Buffer> hidden = Buffer::Allocate(token_count * kHiddenDim * sizeof(float));
  for (float& x : hidden->floats()) x = static_cast<float>(step) + 0.25F;
  bundle.hidden = std::move(hidden);
  return bundle;
}

struct Arrival {
  std::shared_ptr<LinkHandle> from;
  uint64_t sequence = 0;
  StageBundle bundle;
};

// Node "b", which takes what comes and answers what the test says.
class Receiver {
 public:
  explicit Receiver(const LinkWindow& window = {}, const LinkLimits& limits = {},
                    bool takes_plans = true) {
    ShardEvents events;
    events.identity = [] { return IdentityOf("b", 2); };
    events.on_open = [this](OpenAttempt, auto reply) {
      ++orders;
      reply(OpenReply{});
    };
    events.on_fence = [this](const FenceOrder&, auto reply) {
      ++orders;
      reply(FenceReply{});
    };
    const auto authorise = [](const auto& request) {
      if (request.capability() != "forged") return absl::OkStatus();
      return MakeFailure(FailureKind::kUnauthorised, "forged");
    };
    events.authorise_open = authorise;
    events.authorise_fence = authorise;
    events.on_link_opened = [this](std::shared_ptr<LinkHandle> link) {
      if (welcomes) link->Welcome();
      EXPECT_TRUE(opened.TryPost(std::move(link)));
    };
    events.on_inspect = [this](std::shared_ptr<LinkHandle> link, std::vector<InspectRow> rows) {
      EXPECT_TRUE(inspects.TryPost({std::move(link), std::move(rows)}));
    };
    events.on_bundle = [this](std::shared_ptr<LinkHandle> from, uint64_t sequence,
                              StageBundle bundle) {
      EXPECT_TRUE(arrivals.TryPost(Arrival{std::move(from), sequence, std::move(bundle)}));
    };
    if (takes_plans) {
      events.on_plan = [this](std::shared_ptr<LinkHandle> link) {
        EXPECT_TRUE(plans.TryPost(std::move(link)));
      };
    }
    events.on_link_closed = [this](std::shared_ptr<LinkHandle> link) {
      EXPECT_TRUE(closed.TryPost(std::move(link)));
    };
    HeadEvents head;
    head.on_run = [](RunRequest, std::shared_ptr<RunStream> stream) {
      stream->Fail(absl::UnimplementedError(""));
    };
    head.on_run_closed = [](AttemptKey, std::shared_ptr<RunStream>) {};
    server = NodeServer::Start("127.0.0.1:0", events, head, limits, window).value();
  }

  std::atomic<bool> welcomes = true;
  std::atomic<int> orders = 0;  // OPENs and FENCEs.
  Mailbox<std::shared_ptr<LinkHandle>> opened{1024};
  Mailbox<std::pair<std::shared_ptr<LinkHandle>, std::vector<InspectRow>>> inspects{64};
  Mailbox<Arrival> arrivals{1024};
  Mailbox<std::shared_ptr<LinkHandle>> plans{64};
  Mailbox<std::shared_ptr<LinkHandle>> closed{1024};
  std::unique_ptr<NodeServer> server;
};

// Node "a".
class Sender {
 public:
  explicit Sender(const Receiver& to, LinkIdentity self = IdentityOf("a", 1))
      : Sender(to, MakeHello(self, {NodeId("b"), Incarnation(2)})) {}

  Sender(const Receiver& to, v1::LinkHello hello, size_t waiting_max = 64,
         absl::Duration welcome_timeout = kPatience) {
    LinkClientEvents events;
    events.on_row_failure = [this](RowFailure failure) {
      EXPECT_TRUE(failures.TryPost(std::move(failure)));
    };
    events.on_lost = [this](absl::Status status) { EXPECT_TRUE(lost.TryPost(std::move(status))); };
    events.on_up = [this] { EXPECT_TRUE(ups.TryPost(0)); };
    events.on_status = [this](std::vector<InspectStatus> rows) {
      EXPECT_TRUE(statuses.TryPost(std::move(rows)));
    };
    link = std::make_unique<LinkClient>(LinkClientOptions{.peer = {NodeId("b"), Incarnation(2)},
                                                          .address = to.server->address(),
                                                          .hello = std::move(hello),
                                                          .hidden_dim = kHiddenDim,
                                                          .bundles_waiting_max = waiting_max,
                                                          .welcome_timeout = welcome_timeout,
                                                          .pause_min = absl::Milliseconds(1),
                                                          .pause_max = absl::Milliseconds(1)},
                                        std::move(events), SystemClock(), &calls);
  }

  ~Sender() {
    link.reset();
    EXPECT_TRUE(calls.AwaitZero(kPatience));
  }

  CallCounter calls;
  Mailbox<RowFailure> failures{64};
  Mailbox<absl::Status> lost{64};
  Mailbox<int> ups{64};
  Mailbox<std::vector<InspectStatus>> statuses{64};
  std::unique_ptr<LinkClient> link;
};

// A peer that writes whatever bytes it likes, one operation at a time.
class RawPeer {
 public:
  explicit RawPeer(const Receiver& to)
      : stub_(grpc::CreateChannel(to.server->address(), grpc::InsecureChannelCredentials())),
        stream_(stub_.PrepareCall(&context_, "/shardline.v1.Shard/Link", &queue_)) {
    stream_->StartCall(nullptr);
    Await();
  }

  ~RawPeer() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const grpc::ByteBuffer& bytes) {
    stream_->Write(bytes, nullptr);
    return Await();
  }

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return Write(grpc::ByteBuffer(&slice, 1));
  }

  void WritesDone() {
    stream_->WritesDone(nullptr);
    Await();
  }

  // The next signal; an empty one at the end.
  v1::LinkSignal Read() {
    v1::LinkSignal signal;
    stream_->Read(&signal, nullptr);
    if (!Await()) signal.Clear();
    return signal;
  }

  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Await();
    return status;
  }

  void SayHello() {
    ASSERT_TRUE(Write(EncodeHello(MakeHello(IdentityOf("a", 1), {NodeId("b"), Incarnation(2)}))));
    ASSERT_EQ(Read().signal_case(), v1::LinkSignal::kWelcome);
  }

  // The refusal that ends the stream, and a clean end.
  absl::Status ExpectRefusal() {
    const v1::LinkSignal signal = Read();
    EXPECT_EQ(signal.signal_case(), v1::LinkSignal::kRefusal);
    EXPECT_EQ(Read().signal_case(), v1::LinkSignal::SIGNAL_NOT_SET);
    EXPECT_TRUE(Finish().ok());
    return FromProto(signal.refusal());
  }

 private:
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    // An answer that never comes is a failure that says so, not a test that hangs.
    if (queue_.AsyncNext(&tag, &ok, GrpcDeadline(kPatience)) == grpc::CompletionQueue::TIMEOUT) {
      ADD_FAILURE() << "no answer from the other end";
      context_.TryCancel();
      return queue_.Next(&tag, &ok) && ok;
    }
    return ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::LinkSignal> stub_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, v1::LinkSignal>> stream_;
};

inline LinkBundle Numbered(uint64_t sequence) {
  LinkBundle bundle = ToLinkBundle(OneRow(sequence), kHiddenDim);
  bundle.sequence = sequence;
  return bundle;
}

inline void ExpectAlive(const Receiver& receiver) {
  RawPeer peer(receiver);
  peer.SayHello();
}

}  // namespace shardline::testing
