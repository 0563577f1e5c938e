// A coordinator that dies and comes back finds its nodes with their weights; of two processes with
// one node id the older one ends.

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// How often `words` stand in `text`.
size_t CountOf(const std::string& text, const std::string& words) {
  const std::vector<std::string> parts = absl::StrSplit(text, words);
  return parts.size() - 1;
}

class CoordinatorRestartTest : public ::testing::Test {
 protected:
  void LoadModel() {
    v1::LoadModelRequest request;
    request.set_path(GoldenModelPath());
    request.set_name("smollm2");
    request.set_shards(2);
    request.set_context_tokens_max(1024);
    ASSERT_THAT(cluster_.LoadModel(request), IsOk());
  }

  std::string NodeLog(int index) const {
    return ReadFile(absl::StrCat(cluster_.directory(), "/", cluster_.NodeName(index), ".log"));
  }

  // A second coordinator with the directory and the port of the first, which is dead.
  void StartCoordinatorAgain() {
    AddressPipe pipe(cluster_.directory(), "coordinator-2.port");
    second_ = std::make_unique<Process>(Process::Options{
        .argv = {BinaryPath("shardline-coordinator"), "--listen", cluster_.coordinator_address(),
                 "--data-dir", cluster_.directory() + "/coordinator", "--port-file", pipe.path(),
                 "--http", "127.0.0.1:0"},
        .environment = {},
        .output_path = cluster_.directory() + "/coordinator-2.log"});
    ASSERT_EQ(pipe.Read(kPatience), cluster_.coordinator_address()) << cluster_.Logs();
    // The cluster's own channel may be waiting out its back-off.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(cluster_.coordinator_address(),
                                         grpc::InsecureChannelCredentials(), arguments);
  }

  v1::ClusterStatus StatusOfSecond() {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kPatience));
    context.set_wait_for_ready(true);
    v1::ClusterStatus status;
    const auto stub = v1::Admin::NewStub(channel_);
    EXPECT_TRUE(stub->GetStatus(&context, v1::GetStatusRequest(), &status).ok());
    return status;
  }

  Answer GenerateOnSecond(const v1::GenerateRequest& request) {
    Answer answer;
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(absl::Minutes(3)));
    const auto reader = v1::Inference::NewStub(channel_)->Generate(&context, request);
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      if (event.has_token()) answer.tokens.push_back(event.token().token().token());
    }
    answer.status = FromGrpcStatus(reader->Finish());
    return answer;
  }

  Cluster cluster_{{.nodes = 2}};
  std::unique_ptr<Process> second_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(CoordinatorRestartTest, ItsNodesRejoinByThemselvesWithTheWeightsTheyHave) {
  ASSERT_NO_FATAL_FAILURE(LoadModel());
  const Answer whole = cluster_.Generate(Greedy("The quick brown fox", 24));
  ASSERT_THAT(whole.status, IsOk());
  const Answer cut = cluster_.Generate(Greedy("The quick brown fox", 900), [&](int count) {
    if (count == 10) cluster_.coordinator().Signal(SIGKILL);
  });
  EXPECT_FALSE(cut.status.ok());
  EXPECT_FALSE(cut.end.has_value());
  cluster_.coordinator().Wait(kPatience);

  ASSERT_NO_FATAL_FAILURE(StartCoordinatorAgain());
  const bool ready = cluster_.Until(kPatience, [&](Cluster&) {
    const v1::ClusterStatus status = StatusOfSecond();
    return status.models_size() == 1 && status.models(0).state() == v1::MODEL_STATE_READY;
  });
  ASSERT_TRUE(ready) << StatusOfSecond().DebugString();
  const Answer again = GenerateOnSecond(Greedy("The quick brown fox", 24));
  ASSERT_THAT(again.status, IsOk());
  EXPECT_THAT(again.tokens, ElementsAreArray(whole.tokens));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(cluster_.node(i).Running());
    EXPECT_EQ(CountOf(NodeLog(i), "shard loaded"), 1U) << "the weights were read again";
  }
}

TEST_F(CoordinatorRestartTest, OfTwoProcessesWithOneNodeIdTheOlderEndsWithAFailure) {
  const std::string name = cluster_.NodeName(0);
  const Process twin(Process::Options{
      .argv = {BinaryPath("shardline-node"), "--listen", "127.0.0.1:0", "--coordinator",
               cluster_.coordinator_address(), "--data-dir", cluster_.directory() + "/twin",
               "--node-id", name, "--memory", "2GiB", "--threads", "1"},
      .environment = {},
      .output_path = cluster_.directory() + "/twin.log"});
  EXPECT_EQ(cluster_.node(0).Wait(kPatience), 1);
  EXPECT_THAT(NodeLog(0), HasSubstr("another process has this node's id"));
  EXPECT_TRUE(cluster_.Until(
      kPatience, [&](Cluster& cluster) { return cluster.Status().nodes_ready() == 2; }));
  ASSERT_NO_FATAL_FAILURE(LoadModel());
  EXPECT_THAT(cluster_.Generate(Greedy("The quick brown fox", 4)).status, IsOk());
}

}  // namespace
}  // namespace shardline::testing
