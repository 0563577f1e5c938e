// Sessions that outlive nodes, connections and the coordinator: spare shards, keys answered from
// the ledger, clients that come back to a new term. Real gRPC, fake models.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

class RecoveryTest : public ::testing::Test {
 protected:
  void StartReady() {
    ASSERT_THAT(cluster_.Start(), IsOk());
    a_.Join(cluster_.port());
    b_.Join(cluster_.port());
    ASSERT_TRUE(cluster_.WaitUntilNodes(2));
    a_.SetAnswer({.tokens = ByteTokens("hello")});
    ASSERT_THAT(cluster_.Load(2), IsOk());
  }
  void RestartCoordinator() {
    a_.Leave();
    b_.Leave();
    cluster_.Stop();
    ASSERT_THAT(cluster_.Start(), IsOk());
    a_.Rejoin(cluster_.port());
    b_.Rejoin(cluster_.port());
  }
  static v1::GenerateRequest Keyed(const std::string& prompt) {
    v1::GenerateRequest request = TextRequest(prompt);
    request.set_idempotency_key("key");
    return request;
  }

  TestCluster cluster_;
  FakeNode a_{{.id = "node-a"}};
  FakeNode b_{{.id = "node-b"}};
};

TEST_F(RecoveryTest, ACompletedKeyIsAnsweredFromTheLedgerAndRunsNothing) {
  StartReady();
  const Answer first = cluster_.Generate(Keyed("hi"));
  ASSERT_THAT(first.status, IsOk());
  const size_t runs = a_.runs().size();
  const size_t opens = b_.opens().size();
  const Answer second = cluster_.Generate(Keyed("hi"));
  EXPECT_THAT(second.status, IsOk());
  EXPECT_EQ(second.text, "hello");
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.started.session(), first.started.session());
  EXPECT_EQ(second.end.generated_tokens(), 5u);
  EXPECT_EQ(a_.runs().size(), runs);
  EXPECT_EQ(b_.opens().size(), opens);
  EXPECT_THAT(cluster_.Generate(Keyed("ho")).status, FailsWith(FailureKind::kKeyConflict));
}

TEST_F(RecoveryTest, AKeyOutlivesTheCoordinator) {
  StartReady();
  const Answer first = cluster_.Generate(Keyed("hi"));
  RestartCoordinator();
  ASSERT_TRUE(cluster_.WaitUntilReady());
  const size_t runs = a_.runs().size();
  const Answer second = cluster_.Generate(Keyed("hi"));
  EXPECT_THAT(second.status, IsOk());
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(a_.runs().size(), runs);
}

TEST_F(RecoveryTest, AClientThatComesBackToANewTermGoesOnBehindWhatItHolds) {
  StartReady();
  a_.SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
  const v1::GenerateRequest request = TextRequest("hi");
  uint64_t session = 0;
  {
    const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(request);
    v1::GenerateEvent event;
    while (call->Read(&event) && !(event.has_token() && event.token().token().index() == 1)) {
      if (event.has_started()) session = event.started().session();
    }
    // A crash leaves the files as they are in the middle of things.
    const std::string crashed = cluster_.options().data_dir + "-crashed";
    std::filesystem::copy(cluster_.options().data_dir, crashed);
    a_.Leave();
    b_.Leave();
    cluster_.Stop();
    cluster_.options().data_dir = crashed;
    while (call->Read(&event)) {
    }
    EXPECT_FALSE(call->Finish().ok());
  }
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  ASSERT_THAT(cluster_.Start(), IsOk());
  v1::GenerateRequest back = request;
  back.mutable_reattach()->set_session(session);
  for (const int32_t token : ByteTokens("he")) back.mutable_reattach()->add_tokens_held(token);
  a_.Rejoin(cluster_.port());
  b_.Rejoin(cluster_.port());
  const Answer answer = cluster_.Generate(back);  // Whether or not the nodes are back yet.
  EXPECT_THAT(answer.status, IsOk());
  EXPECT_EQ(answer.text, "llo");
  EXPECT_EQ(answer.started.session(), session);
  EXPECT_GT(answer.started.epoch(), 1u);
  EXPECT_EQ(answer.end.generated_tokens(), 5u);
}

TEST_F(RecoveryTest, ASpareShardTakesOverWithoutWaitingForTheLostNode) {
  FakeNode c({.id = "node-c"});
  FakeNode d({.id = "node-d"});
  FakeNode* const all[] = {&a_, &b_, &c, &d};
  ASSERT_THAT(cluster_.Start(), IsOk());
  for (FakeNode* node : all) {
    node->SetAnswer({.tokens = ByteTokens("he"), .then_hang = true});
    node->Join(cluster_.port());
  }
  ASSERT_TRUE(cluster_.WaitUntilNodes(4));
  v1::LoadModelRequest load;
  load.set_shards(2);
  load.set_replicas(2);
  ASSERT_THAT(cluster_.LoadAs(load), IsOk());
  ASSERT_TRUE(cluster_.WaitUntil([](const v1::ClusterStatus& s) { return s.healthy(); }));
  const std::unique_ptr<ClientCall> call = cluster_.StartGenerate(TextRequest("hi"));
  v1::GenerateEvent event;
  std::string text;
  v1::GenerateStarted started;
  v1::GenerateRestarted restarted;
  const auto read = [&] {
    if (!call->Read(&event)) return false;
    if (event.has_started()) started = event.started();
    if (event.has_restarted()) restarted = event.restarted();
    if (event.has_token()) text += event.token().text();
    if (event.has_end()) text += event.end().text();
    return true;
  };
  while (text.size() < 2 && read()) {
  }
  for (FakeNode* node : all) node->SetAnswer({.tokens = ByteTokens("hello")});
  const std::string lost = started.route(1).node_id();
  (lost == "node-b" ? b_ : d).Leave();
  while (read()) {
  }
  EXPECT_THAT(call->Finish(), IsOk());
  EXPECT_EQ(text, "hello");
  ASSERT_EQ(restarted.route_size(), 2);
  EXPECT_NE(restarted.route(1).node_id(), lost);
}

}  // namespace
}  // namespace shardline::testing
