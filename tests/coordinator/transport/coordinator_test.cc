// The coordinator as a whole, against nodes that misbehave: real gRPC, fake models.

#include "coordinator/coordinator.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of equal nodes the first by id is the head.
class CoordinatorTest : public ::testing::Test {
 protected:
  void StartWithTwoNodes() {
    ASSERT_THAT(cluster_.Start(), IsOk());
    a_.Join(cluster_.port());
    b_.Join(cluster_.port());
    ASSERT_TRUE(cluster_.WaitUntilNodes(2));
  }

  void StartReady() {
    StartWithTwoNodes();
    a_.SetAnswer({.tokens = ByteTokens("hello")});
    ASSERT_THAT(cluster_.Load(2), IsOk());
  }

  TestCluster cluster_;
  FakeNode a_{{.id = "node-a"}};
  FakeNode b_{{.id = "node-b"}};
};

TEST_F(CoordinatorTest, AnAnswerStreamsThroughTheHeadAndEveryStageIsFencedAfter) {
  StartReady();
  const Answer answer = cluster_.Generate("hi");
  EXPECT_THAT(answer.status, IsOk());
  EXPECT_EQ(answer.text, "hello");
  ASSERT_TRUE(answer.has_end);
  EXPECT_EQ(answer.end.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.end.generated_tokens(), 5u);
  EXPECT_EQ(answer.started.route_size(), 2);
  EXPECT_EQ(answer.started.route(0).node_id(), "node-a");
  const uint64_t session = answer.started.session();
  const auto fenced = [session](const FakeNode& node) { return WasFenced(node, session); };
  EXPECT_TRUE(a_.WaitUntil(fenced));
  EXPECT_TRUE(b_.WaitUntil(fenced));
}

TEST_F(CoordinatorTest, AModelIsReadyOnlyAfterATokenWentRoundItsRing) {
  StartWithTwoNodes();
  a_.SetAnswer({.tokens = ByteTokens("x")});
  std::vector<v1::LoadModelEvent> events;
  ASSERT_THAT(cluster_.Load(2, &events), IsOk());
  EXPECT_EQ(a_.opens().size(), 1u);
  EXPECT_EQ(b_.opens().size(), 1u);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().model().state(), v1::MODEL_STATE_READY);
  EXPECT_EQ(events.front().model().state(), v1::MODEL_STATE_LOADING);
  ASSERT_EQ(a_.loads().size(), 1u);
  EXPECT_TRUE(a_.loads()[0].is_head());
  EXPECT_FALSE(b_.loads()[0].is_head());
  EXPECT_TRUE(cluster_.Status().healthy());
}

TEST_F(CoordinatorTest, ARefusalOfOneStageFencesTheOthers) {
  StartReady();
  b_.RefuseOpens(MakeFailure({.kind = FailureKind::kKvExhausted, .node = NodeId("node-b")},
                             "0 of 8 pages free"));
  v1::GenerateRequest hurried = TextRequest("hi");
  hurried.set_deadline_ms(900);  // It waits for room, and not longer than this.
  const Answer answer = cluster_.Generate(hurried);
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("node-b (layers 2-3) refused"));
  EXPECT_FALSE(answer.has_end);
  const uint64_t session = a_.opens().back().session();
  EXPECT_TRUE(a_.WaitUntil([session](const FakeNode& node) { return WasFenced(node, session); }));

  b_.RefuseOpens(absl::OkStatus());
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(CoordinatorTest, AnAnswerWhoseNodeStaysAwayExpiresNamingItAndItsLayers) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  v1::GenerateRequest request = TextRequest("hi");
  request.set_deadline_ms(1500);
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(request);
  v1::GenerateEvent event;
  while (call->Read(&event) && !event.has_token()) {
  }
  b_.Leave();
  while (call->Read(&event)) EXPECT_FALSE(event.has_end());
  const v1::LayerRange held = b_.loads()[0].layers();
  const std::string lost = "node-b (" + LayerRange{held.begin(), held.end()}.ToString() + ")";
  EXPECT_THAT(call->Finish(), StatusHas(absl::StatusCode::kDeadlineExceeded, HasSubstr(lost)));
}

TEST_F(CoordinatorTest, WhileItsModelIsDegradedANewRequestIsRefusedByName) {
  StartReady();
  b_.Leave();
  ASSERT_TRUE(cluster_.WaitUntilNodes(1));
  const Answer refused = cluster_.Generate("hi");
  EXPECT_THAT(refused.status, StatusHas(absl::StatusCode::kUnavailable, HasSubstr("node-b")));
  EXPECT_EQ(cluster_.Status().models(0).state(), v1::MODEL_STATE_DEGRADED);
  b_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilReady());
  EXPECT_EQ(b_.loads().size(), 2u);
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(CoordinatorTest, AClientThatHangsUpFreesEveryStage) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
  v1::GenerateEvent event;
  uint64_t session = 0;
  while (call->Read(&event) && !event.has_token()) {
    if (event.has_started()) session = event.started().session();
  }
  call->Cancel();
  ASSERT_NE(session, 0u);
  const auto fenced = [session](const FakeNode& node) { return WasFenced(node, session); };
  EXPECT_TRUE(a_.WaitUntil(fenced));
  EXPECT_TRUE(b_.WaitUntil(fenced));
  while (call->Read(&event)) {
  }
  EXPECT_THAT(call->Finish(), StatusHas(absl::StatusCode::kCancelled, HasSubstr("")));
}

TEST_F(CoordinatorTest, ADeadlineEndsAnAnswerThatDoesNotCome) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  v1::GenerateRequest request = TextRequest("hi");
  request.set_deadline_ms(200);
  const Answer answer = cluster_.Generate(request);
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kDeadlineExceeded));
  EXPECT_EQ(answer.text, "he");
  const uint64_t session = answer.started.session();
  EXPECT_TRUE(b_.WaitUntil([session](const FakeNode& node) { return WasFenced(node, session); }));
}

TEST_F(CoordinatorTest, AClientThatDoesNotReadIsEndedAndHoldsUpNobody) {
  cluster_.options().client_events_max = 16;
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens(std::string(400, 'x')), .alternatives_each = 4000});
  v1::GenerateRequest request = TextRequest("hi");
  request.set_new_tokens_max(400);
  const std::unique_ptr<ClientCall> slow = cluster_.StartGenerate(request);
  // Its attempt is over on every stage, although it has read nothing.
  const size_t probes = 1;
  ASSERT_TRUE(b_.WaitUntil([](const FakeNode& node) { return node.fences().size() > probes; }));

  a_.SetAnswer({.tokens = ByteTokens("hello")});
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");

  v1::GenerateEvent event;
  while (slow->Read(&event)) EXPECT_FALSE(event.has_end());
  EXPECT_THAT(slow->Finish(), FailsWith(FailureKind::kOverloaded));
}

TEST_F(CoordinatorTest, NodesOfDifferentNumericsDoNotShareARoute) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  FakeNode other({.id = "node-c", .numerics_id = "other"});
  a_.SetAnswer({.tokens = ByteTokens("x")});
  a_.Join(cluster_.port());
  other.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilNodes(2));
  const absl::Status status = cluster_.Load(2);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("fake"), HasSubstr("other"), HasSubstr("node-c")));
  EXPECT_TRUE(a_.opens().empty());
}

TEST_F(CoordinatorTest, AModelThatDoesNotFitIsExplainedNodeByNode) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  FakeNode small({.id = "node-s", .memory_bytes = 1 << 20});
  FakeNode tiny({.id = "node-t", .memory_bytes = 1 << 10});
  small.Join(cluster_.port());
  tiny.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilNodes(2));
  const absl::Status status = cluster_.Load(0);
  EXPECT_THAT(status, FailsWith(FailureKind::kOverloaded));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("node-s"), HasSubstr("node-t")));
  EXPECT_EQ(cluster_.Status().models_size(), 0);
}

TEST_F(CoordinatorTest, ABadFileIsOneLineThatNamesIt) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  TestCluster* cluster = &cluster_;
  a_.Join(cluster->port());
  ASSERT_TRUE(cluster->WaitUntilNodes(1));
  std::filesystem::resize_file(cluster->model_path(), 100);
  const absl::Status status = cluster->Load(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "the request was fine";
  EXPECT_THAT(std::string(status.message()), HasSubstr("tiny.gguf"));
  EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
}

TEST_F(CoordinatorTest, ARestartedCoordinatorUsesTheShardsItsNodesHold) {
  StartReady();
  const uint64_t term = cluster_.Status().term();
  a_.Leave();
  b_.Leave();
  cluster_.Stop();
  ASSERT_THAT(cluster_.Start(), IsOk());
  EXPECT_GT(cluster_.Status().term(), term);
  a_.Rejoin(cluster_.port());
  b_.Rejoin(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilReady());
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
  EXPECT_EQ(a_.loads().size(), 1u);
  EXPECT_EQ(b_.loads().size(), 1u);
}

TEST_F(CoordinatorTest, TheModelOfTheCommandLineIsLoadedOnceEnoughNodesAreThere) {
  cluster_.options().model = cluster_.model_path();
  cluster_.options().shards = 2;
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  ASSERT_THAT(cluster_.Start(), IsOk());
  a_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilNodes(1));
  EXPECT_TRUE(a_.loads().empty());
  b_.Join(cluster_.port());
  ASSERT_TRUE(cluster_.WaitUntilReady());
  EXPECT_EQ(cluster_.Generate("hi").text, "hello");
}

TEST_F(CoordinatorTest, APromptThatFillsTheContextIsRefusedWithBothNumbers) {
  StartReady();
  v1::GenerateRequest request;
  for (int i = 0; i < 512; ++i) request.mutable_tokens()->add_ids(5);
  const Answer answer = cluster_.Generate(request);
  EXPECT_THAT(answer.status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("512"));
  request.mutable_tokens()->mutable_ids()->RemoveLast();
  EXPECT_THAT(cluster_.Generate(request).status, IsOk());  // Room for one token.
  EXPECT_EQ(a_.opens().back().tokens_max(), 512u);
}

TEST_F(CoordinatorTest, RequestsThatMakeNoSenseReachNoNode) {
  StartReady();
  const size_t opens = a_.opens().size();
  v1::GenerateRequest nothing;
  EXPECT_THAT(cluster_.Generate(nothing).status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(cluster_.Generate("").status, FailsWith(FailureKind::kInvalidRequest));
  v1::GenerateRequest outside;
  outside.mutable_tokens()->add_ids(1 << 20);
  EXPECT_THAT(cluster_.Generate(outside).status, FailsWith(FailureKind::kInvalidRequest));
  v1::GenerateRequest nan = TextRequest("hi");
  nan.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(cluster_.Generate(nan).status, FailsWith(FailureKind::kInvalidRequest));
  v1::GenerateRequest bias = TextRequest("hi");
  (*bias.mutable_sampling()->mutable_logit_bias())[1 << 20] = 1;
  EXPECT_THAT(cluster_.Generate(bias).status, FailsWith(FailureKind::kInvalidRequest));
  v1::GenerateRequest unknown = TextRequest("hi");
  unknown.set_model("nope");
  EXPECT_THAT(cluster_.Generate(unknown).status,
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("nope")));
  EXPECT_EQ(a_.opens().size(), opens);
}

TEST_F(CoordinatorTest, BytesOfACharacterAreHeldUntilItIsWhole) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("a\xF0\x9F\x98\x8A\xC0\x80\xE6")});
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
  std::vector<std::string> pieces;
  v1::GenerateEvent event;
  while (call->Read(&event)) {
    if (event.has_token() && !event.token().text().empty()) pieces.push_back(event.token().text());
    if (event.has_end()) pieces.push_back(event.end().text());
  }
  EXPECT_THAT(call->Finish(), IsOk());
  EXPECT_THAT(pieces, ::testing::ElementsAre("a", "\xF0\x9F\x98\x8A", "\xC0", "\x80", "\xE6"));
}

TEST_F(CoordinatorTest, UnloadEndsWhatRunsAndFreesTheNodes) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
  v1::GenerateEvent event;
  while (call->Read(&event) && !event.has_token()) {
  }
  EXPECT_THAT(cluster_.Unload("tiny"), IsOk());
  while (call->Read(&event)) {
  }
  EXPECT_THAT(call->Finish(), FailsWith(FailureKind::kCancelled));
  EXPECT_THAT(cluster_.Unload("tiny"), StatusHas(absl::StatusCode::kNotFound, HasSubstr("tiny")));
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  EXPECT_THAT(cluster_.Load(2), IsOk());
}

TEST_F(CoordinatorTest, ShutdownEndsARunningAnswerWithAReason) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
  v1::GenerateEvent event;
  while (call->Read(&event) && !event.has_token()) {
  }
  std::thread stopper([this] { cluster_.Stop(); });
  while (call->Read(&event)) EXPECT_FALSE(event.has_end());
  EXPECT_FALSE(call->Finish().ok());
  stopper.join();
}

TEST_F(CoordinatorTest, AHelloThatIsNotOneIsRefused) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  FakeNode bad({.id = "node with spaces"});
  bad.Join(cluster_.port());
  EXPECT_TRUE(bad.WaitUntil([](const FakeNode& node) { return !node.refusal().ok(); }));
  EXPECT_EQ(cluster_.Status().nodes_ready(), 0u);
}

TEST_F(CoordinatorTest, ASecondCoordinatorOnOneDataDirectoryIsRefused) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  TestCluster second;
  second.options().data_dir = cluster_.options().data_dir;
  EXPECT_THAT(second.Start(),
              StatusHas(absl::StatusCode::kUnavailable, HasSubstr("another coordinator")));
}

TEST_F(CoordinatorTest, ATakenPortIsOneClearLine) {
  ASSERT_THAT(cluster_.Start(), IsOk());
  TestCluster second;
  second.options().listen = "127.0.0.1:" + std::to_string(cluster_.port());
  const absl::Status status = second.Start();
  EXPECT_THAT(status, StatusHas(absl::StatusCode::kUnavailable, HasSubstr("port is taken")));
}

}  // namespace
}  // namespace shardline::testing
