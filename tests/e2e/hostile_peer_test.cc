// Peers of another build and peers that send nonsense are refused in words, and nothing else: the
// processes live on, and a session that runs meanwhile gets its whole answer (cases W8 and W11).

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "proto/wire/link_codec.h"
#include "shardline/v1/join.grpc.pb.h"
#include "shardline/v1/link.grpc.pb.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kHidden = 64;
constexpr absl::Duration kPatience = absl::Seconds(20);

class HostilePeerTest : public ::testing::Test {
 protected:
  HostilePeerTest() : directory_(FreshDirectory()), cluster_({.nodes = 2, .memory = "256MiB"}) {
    v1::LoadModelRequest load;
    load.set_path(MakeTinyLlama(directory_, {.hidden = kHidden, .context = 512}));
    load.set_shards(2);
    const absl::Status loaded = cluster_.LoadModel(load);
    SL_CHECK(loaded.ok(), loaded.ToString());
    calm_ = cluster_.Generate(Greedy("hello", kTokens));
    SL_CHECK(calm_.status.ok(), calm_.status.ToString());
  }

  // While `nonsense` goes on, a session runs; both must come through.
  void ExpectHarmless(const std::function<void()>& nonsense) {
    Answer disturbed;
    std::thread client([&] { disturbed = cluster_.Generate(Greedy("hello", kTokens)); });
    nonsense();
    client.join();
    EXPECT_THAT(disturbed.status, IsOk());
    EXPECT_THAT(disturbed.tokens, ElementsAreArray(calm_.tokens));
    EXPECT_THAT(disturbed.digests, ElementsAreArray(calm_.digests));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(cluster_.node(i).Running());
    EXPECT_TRUE(cluster_.coordinator().Running());
    const Answer after = cluster_.Generate(Greedy("hello", 8));
    EXPECT_THAT(after.status, IsOk());
  }

  static constexpr uint32_t kTokens = 300;
  const std::string directory_;
  Cluster cluster_;
  Answer calm_;
};

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), own);
}

v1::LinkFrame HelloTo(const v1::NodeSummary& node) {
  v1::LinkFrame frame;
  v1::LinkHello& hello = *frame.mutable_hello();
  hello.mutable_protocol()->set_min(kProtocolVersionMin);
  hello.mutable_protocol()->set_max(kProtocolVersionMax);
  hello.set_node_id("node-z");
  hello.set_incarnation(7);
  hello.set_peer_node_id(node.node_id());
  hello.set_peer_incarnation(node.incarnation());
  static uint64_t connections = 0;
  hello.set_connection(++connections);
  return frame;
}

// A link as a stranger opens it. Writes, then reads until the stream ends or a failure comes.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : stub_(v1::Shard::NewStub(ChannelTo(address))) {
    context_.set_deadline(GrpcDeadline(kPatience));
    stream_ = stub_->Link(&context_);
  }
  ~Stranger() {
    context_.TryCancel();
    v1::LinkSignal signal;
    while (stream_->Read(&signal)) {
    }
    stream_->Finish();
  }

  bool Write(const v1::LinkFrame& frame) { return stream_->Write(frame); }

  bool Welcomed() {
    v1::LinkSignal signal;
    return stream_->Read(&signal) && signal.has_welcome();
  }

  // What the node says against what was written; OK when it never says anything.
  absl::Status Complaint() {
    v1::LinkSignal signal;
    while (stream_->Read(&signal)) {
      if (signal.has_refusal()) return FromProto(signal.refusal());
      if (signal.has_failure()) return FromProto(signal.failure().failure());
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<v1::Shard::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::LinkFrame, v1::LinkSignal>> stream_;
};

// The recipe that `node` insists on, as its refusal of a hello without one tells: "…, this node
// model M, numerics N, plan P".
v1::Recipe RecipeOf(const v1::NodeSummary& node) {
  Stranger stranger(node.address());
  stranger.Write(HelloTo(node));
  const std::string refusal(stranger.Complaint().message());
  const std::vector<std::string> words = absl::StrSplit(refusal.substr(refusal.rfind("this node ")),
                                                        absl::ByAnyChar(" ,"), absl::SkipEmpty());
  v1::Recipe recipe;
  uint64_t plan = 0;
  SL_CHECK(words.size() == 8 && absl::SimpleAtoi(words[7], &plan), refusal);
  recipe.set_model_id(words[3]);
  recipe.set_numerics_id(words[5]);
  recipe.set_plan_epoch(plan);
  return recipe;
}

// A sound bundle of one row for a session nobody has opened.
v1::LinkFrame SoundBundle() {
  LinkBundle bundle;
  bundle.sequence = 1;
  bundle.hidden_dim = kHidden;
  bundle.rows.push_back({.key = {{SessionId(12345), Epoch(1)}, StepIndex(0)},
                         .token_count = 1,
                         .hop = 1,
                         .budget = absl::Seconds(1)});
  bundle.payload = Buffer::Allocate(kHidden * sizeof(float));
  std::vector<grpc::Slice> slices;
  SL_CHECK(EncodeBundle(bundle).Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::LinkFrame frame;
  SL_CHECK(frame.ParseFromString(bytes));
  return frame;
}

TEST_F(HostilePeerTest, AnotherProtocolIsRefusedNamingBothRangesAndItsNeighbourVersionsWork) {
  const v1::NodeSummary node = cluster_.ListNodes().nodes(1);
  const v1::Recipe recipe = RecipeOf(node);
  const auto hello = [&](uint32_t min, uint32_t max) {
    v1::LinkFrame frame = HelloTo(node);
    *frame.mutable_hello()->mutable_recipe() = recipe;
    frame.mutable_hello()->mutable_protocol()->set_min(min);
    frame.mutable_hello()->mutable_protocol()->set_max(max);
    return frame;
  };
  ExpectHarmless([&] {
    // One that speaks more than we do, ours included, is welcome; one without a common version is
    // not.
    Stranger newer(node.address());
    newer.Write(hello(kProtocolVersionMin, kProtocolVersionMax + 1));
    EXPECT_TRUE(newer.Welcomed());
    const std::pair<uint32_t, uint32_t> strangers[] = {
        {kProtocolVersionMax + 1, kProtocolVersionMax + 2}, {0, kProtocolVersionMin - 1}};
    for (const auto& [min, max] : strangers) {
      Stranger stranger(node.address());
      stranger.Write(hello(min, max));
      const absl::Status refusal = stranger.Complaint();
      EXPECT_THAT(refusal, FailsWith(FailureKind::kIncompatibleRecipe));
      EXPECT_THAT(std::string(refusal.message()),
                  AllOf(HasSubstr(absl::StrCat(min, " to ", max)),
                        HasSubstr(absl::StrCat(kProtocolVersionMin, " to ", kProtocolVersionMax))));
    }
  });
}

TEST_F(HostilePeerTest, ANodeOfAnotherProtocolMayNotJoin) {
  ExpectHarmless([&] {
    const auto stub = v1::Coordinator::NewStub(ChannelTo(cluster_.coordinator_address()));
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kPatience));
    const auto stream = stub->Join(&context);
    v1::NodeMessage message;
    message.mutable_hello()->mutable_protocol()->set_min(kProtocolVersionMax + 1);
    message.mutable_hello()->mutable_protocol()->set_max(kProtocolVersionMax + 1);
    message.mutable_hello()->set_node_id("node-z");
    message.mutable_hello()->set_address("127.0.0.1:1");
    message.mutable_hello()->set_boot_id("boot");
    stream->Write(message);
    v1::CoordinatorMessage answer;
    ASSERT_TRUE(stream->Read(&answer));
    ASSERT_TRUE(answer.has_refusal()) << answer.ShortDebugString();
    EXPECT_THAT(answer.refusal().message(),
                AllOf(HasSubstr(std::to_string(kProtocolVersionMax + 1)),
                      HasSubstr(std::to_string(kProtocolVersionMax))));
    EXPECT_FALSE(stream->Read(&answer));
    stream->Finish();
    EXPECT_EQ(cluster_.ListNodes().nodes_size(), 2);
  });
}

TEST_F(HostilePeerTest, GarbageInPlaceOfAFirstFrameEndsItsConnection) {
  const auto send_raw = [](const std::string& address, const std::string& bytes) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    int port = 0;
    SL_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    ASSERT_GT(send(socket_fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    char answer[4096];
    timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ssize_t count = 0;
    while ((count = recv(socket_fd, answer, sizeof(answer), 0)) > 0) {
    }
    EXPECT_TRUE(count == 0 || errno == ECONNRESET) << "the connection stays open";
    close(socket_fd);
  };
  const v1::NodeSummary node = cluster_.ListNodes().nodes(0);
  ExpectHarmless([&] {
    for (const std::string& address : {node.address(), cluster_.coordinator_address()}) {
      send_raw(address, "GET / HTTP/1.1\r\nHost: shardline\r\n\r\n");
      send_raw(address, std::string(70'000, '\xFF'));
      send_raw(address, std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(64, '\x7F'));
    }
    Stranger early(node.address());
    early.Write(SoundBundle());
    EXPECT_THAT(early.Complaint(), FailsWith(FailureKind::kMalformedBundle));
    Stranger empty(node.address());
    empty.Write(v1::LinkFrame());
    EXPECT_THAT(empty.Complaint(), FailsWith(FailureKind::kMalformedBundle));
  });
}

TEST_F(HostilePeerTest, ImpossibleBundlesAreRefusedAndEndNothingButTheirLink) {
  const v1::NodeSummary node = cluster_.ListNodes().nodes(1);
  const v1::Recipe recipe = RecipeOf(node);
  struct Case {
    std::string what;
    std::function<void(v1::Bundle&)> spoil;
  };
  const std::vector<Case> cases = {
      {"no rows", [](v1::Bundle& b) { b.mutable_header()->clear_rows(); }},
      {"no tokens", [](v1::Bundle& b) { b.mutable_header()->set_token_count(0); }},
      {"a row without tokens",
       [](v1::Bundle& b) { b.mutable_header()->mutable_rows(0)->set_token_count(0); }},
      {"no payload", [](v1::Bundle& b) { b.clear_payload(); }},
      {"half a payload", [](v1::Bundle& b) { b.mutable_payload()->resize(kHidden * 2); }},
      {"a byte too many", [](v1::Bundle& b) { b.mutable_payload()->push_back('x'); }},
      {"no shape",
       [](v1::Bundle& b) {
         b.mutable_header()->set_hidden_dim(0);
         b.mutable_header()->set_token_count(0);
       }},
      {"a shape of 2^32 by 2^32",
       [](v1::Bundle& b) {
         b.mutable_header()->set_hidden_dim(0xFFFFFFFF);
         b.mutable_header()->set_token_count(0xFFFFFFFF);
         b.mutable_header()->mutable_rows(0)->set_token_count(0xFFFFFFFF);
       }},
      {"rows whose sum wraps",
       [](v1::Bundle& b) {
         *b.mutable_header()->add_rows() = b.header().rows(0);
         b.mutable_header()->mutable_rows(0)->set_token_count(0xFFFFFFFF);
         b.mutable_header()->mutable_rows(1)->set_token_count(2);
       }},
      {"another width", [](v1::Bundle& b) { b.mutable_header()->set_hidden_dim(kHidden / 2); }},
      {"no type", [](v1::Bundle& b) { b.mutable_header()->set_dtype(v1::DTYPE_UNSPECIFIED); }},
      {"an unknown type",
       [](v1::Bundle& b) { b.mutable_header()->set_dtype(static_cast<v1::DType>(99)); }},
      {"flipped bits", [](v1::Bundle& b) { (*b.mutable_payload())[5] ^= 1; }},
      {"a gap", [](v1::Bundle& b) { b.mutable_header()->set_sequence(9); }},
      {"a part that is missing", [](v1::Bundle& b) { b.clear_header(); }},
      {"an attempt nobody opened", [](v1::Bundle&) {}},
      {"a hop beyond the ring",
       [](v1::Bundle& b) { b.mutable_header()->mutable_rows(0)->set_hop(0xFFFFFFFF); }},
      {"a position beyond every context",
       [](v1::Bundle& b) { b.mutable_header()->mutable_rows(0)->set_position(0xFFFFFFFF); }},
      {"a budget below nothing",
       [](v1::Bundle& b) { b.mutable_header()->mutable_rows(0)->set_budget_us(INT64_MIN); }},
  };
  ExpectHarmless([&] {
    for (const Case& a_case : cases) {
      SCOPED_TRACE(a_case.what);
      Stranger stranger(node.address());
      v1::LinkFrame hello = HelloTo(node);
      *hello.mutable_hello()->mutable_recipe() = recipe;
      stranger.Write(hello);
      ASSERT_TRUE(stranger.Welcomed());
      v1::LinkFrame frame = SoundBundle();
      a_case.spoil(*frame.mutable_bundle());
      stranger.Write(frame);
      const absl::Status complaint = stranger.Complaint();
      EXPECT_FALSE(complaint.ok());
      EXPECT_NE(FailureKindOf(complaint), FailureKind::kNone) << complaint;
    }
  });
}

}  // namespace
}  // namespace shardline::testing
