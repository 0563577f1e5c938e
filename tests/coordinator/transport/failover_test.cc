// What a client sees when nodes go and connections break: real gRPC, fake models.

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/failure_conversion.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An answer read piece by piece.
struct Reader {
  explicit Reader(std::unique_ptr<ClientCall> c) : call(std::move(c)) {}

  void ReadTokens(size_t count) {
    while (tokens.size() < count && Read()) {
    }
  }
  absl::Status ReadAll() {
    while (Read()) {
    }
    return call->Finish();
  }
  bool Read() {
    v1::GenerateEvent event;
    if (!call->Read(&event)) return false;
    if (event.has_started()) started = event.started();
    if (event.has_restarted()) restarts.push_back(event.restarted());
    if (event.has_token()) {
      indices.push_back(event.token().token().index());
      tokens.push_back(event.token().token().token());
      text += event.token().text();
    }
    if (event.has_end()) {
      end = event.end();
      text += end.text();
    }
    return true;
  }

  std::unique_ptr<ClientCall> call;
  v1::GenerateStarted started;
  std::vector<v1::GenerateRestarted> restarts;
  std::vector<uint32_t> indices;
  std::vector<int32_t> tokens;
  std::string text;
  v1::GenerateEnd end;
};

class FailoverTest : public ::testing::Test {
 protected:
  // Node a is the head and node b the other stage; the first attempt stops after `first`.
  void StartReady(const std::string& first) {
    ASSERT_THAT(cluster_.Start(), IsOk());
    a_.Join(cluster_.port());
    b_.Join(cluster_.port());
    ASSERT_TRUE(cluster_.WaitUntilNodes(2));
    a_.SetAnswer({.tokens = ByteTokens(first), .then_hang = true});
    ASSERT_THAT(cluster_.Load(2), IsOk());
  }
  std::unique_ptr<Reader> Ask(const v1::GenerateRequest& request) {
    return std::make_unique<Reader>(cluster_.StartGenerate(request));
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

TEST_F(FailoverTest, AStreamGoesOnOverALostNodeWithoutGapOrRepeat) {
  StartReady("he");
  const std::unique_ptr<Reader> reader = Ask(TextRequest("hi"));
  reader->ReadTokens(2);
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  b_.Leave();
  b_.Join(cluster_.port());  // Its next life; the shard is loaded and proven again.
  EXPECT_THAT(reader->ReadAll(), IsOk());
  EXPECT_EQ(reader->text, "hello");
  EXPECT_THAT(reader->indices, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(reader->end.generated_tokens(), 5u);
  EXPECT_EQ(reader->started.epoch(), 1u);
  ASSERT_EQ(reader->restarts.size(), 1u);
  EXPECT_EQ(reader->restarts[0].epoch(), 2u);
  EXPECT_EQ(FailureDetailOf(FromProto(reader->restarts[0].reason())).node, NodeId("node-b"));

  const v1::RunAttemptRequest second = a_.runs().back();
  EXPECT_EQ(second.epoch(), 2u);
  EXPECT_THAT(second.delivered_tokens(), ::testing::ElementsAreArray(ByteTokens("he")));
  EXPECT_LT(second.budget_ms(), a_.runs()[1].budget_ms());
  const uint64_t session = reader->started.session();
  EXPECT_TRUE(a_.WaitUntil([session](const FakeNode& node) { return WasFenced(node, session); }));
}

TEST_F(FailoverTest, AStreamGoesOnOverALostHeadAndHoldsItsHalfCharacter) {
  StartReady("a\xF0\x9F");
  const std::unique_ptr<Reader> reader = Ask(TextRequest("hi"));
  reader->ReadTokens(3);
  EXPECT_EQ(reader->text, "a");
  a_.SetAnswer({.tokens = ByteTokens("a\xF0\x9F\x98\x8A!")});
  a_.Leave();
  a_.Join(cluster_.port());
  EXPECT_THAT(reader->ReadAll(), IsOk());
  EXPECT_EQ(reader->text, "a\xF0\x9F\x98\x8A!");
}

TEST_F(FailoverTest, ASilentNodeIsReplacedWhenItsLeaseEnds) {
  cluster_.options().lease = absl::Milliseconds(300);
  StartReady("he");
  const std::unique_ptr<Reader> reader = Ask(TextRequest("hi"));
  reader->ReadTokens(2);
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  b_.FallSilent();
  ASSERT_TRUE(cluster_.WaitUntilNodes(1));
  b_.Leave();
  b_.Join(cluster_.port());
  EXPECT_THAT(reader->ReadAll(), IsOk());
  EXPECT_EQ(reader->text, "hello");
  ASSERT_EQ(reader->restarts.size(), 1u);
  EXPECT_THAT(FromProto(reader->restarts[0].reason()), FailsWith(FailureKind::kHeartbeatLost));
}

TEST_F(FailoverTest, WhoWaitsForARouteIsToldThatThereIsOne) {
  cluster_.options().route_retry = absl::Minutes(10);  // It would not ask by itself.
  StartReady("he");
  const std::unique_ptr<Reader> reader = Ask(TextRequest("hi"));
  reader->ReadTokens(2);
  a_.SetAnswer({.tokens = ByteTokens("hello")});
  b_.Leave();
  // The pause after which it would take suspects again is over, too.
  ASSERT_TRUE(cluster_.WaitUntilSession([](const v1::SessionSummary& s) {
    return s.phase() == "waiting for a route" && s.age_ms() > 1500;
  }));
  b_.Join(cluster_.port());
  EXPECT_THAT(reader->ReadAll(), IsOk());
  EXPECT_EQ(reader->text, "hello");
}

TEST_F(FailoverTest, TwoDeathsUnderOneSessionEndItAsPoison) {
  StartReady("he");
  const std::unique_ptr<Reader> reader = Ask(TextRequest("hi"));
  reader->ReadTokens(2);
  a_.SetAnswer({.tokens = ByteTokens("hel"), .then_hang = true});
  b_.Leave();
  b_.Join(cluster_.port());
  reader->ReadTokens(3);
  b_.Leave();
  EXPECT_THAT(reader->ReadAll(), FailsWith(FailureKind::kPoison));
  EXPECT_EQ(reader->text, "hel");
}

TEST_F(FailoverTest, ANewerConnectionTakesTheStreamOverBehindWhatItHolds) {
  StartReady("he\xF0\x9F");
  const v1::GenerateRequest request = TextRequest("hi");
  const std::unique_ptr<Reader> older = Ask(request);
  older->ReadTokens(4);
  v1::GenerateRequest back = request;
  back.mutable_reattach()->set_session(older->started.session());
  for (const int32_t token : ByteTokens("he\xF0")) back.mutable_reattach()->add_tokens_held(token);
  const std::unique_ptr<Reader> newer = Ask(back);
  EXPECT_THAT(older->ReadAll(),
              StatusHas(absl::StatusCode::kCancelled, HasSubstr("a newer connection took over")));
  a_.SetAnswer({.tokens = ByteTokens("he\xF0\x9F\x98\x8A!")});
  b_.Leave();
  b_.Join(cluster_.port());
  EXPECT_THAT(newer->ReadAll(), IsOk());
  EXPECT_EQ(newer->started.session(), older->started.session());
  EXPECT_THAT(newer->indices, ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(newer->text, "\xF0\x9F\x98\x8A!");
}

TEST_F(FailoverTest, TheSameKeyJoinsTheSessionThatRuns) {
  StartReady("he");
  const std::unique_ptr<Reader> first = Ask(Keyed("hi"));
  first->ReadTokens(2);
  const size_t runs = a_.runs().size();
  const std::unique_ptr<Reader> second = Ask(Keyed("hi"));
  second->ReadTokens(2);
  EXPECT_EQ(second->started.session(), first->started.session());
  EXPECT_EQ(second->text, "he");
  EXPECT_EQ(a_.runs().size(), runs);
  second->call->Cancel();
  EXPECT_THAT(first->ReadAll(), FailsWith(FailureKind::kCancelled));
  EXPECT_FALSE(second->ReadAll().ok());
}

TEST_F(FailoverTest, AnotherRequestUnderTheSameKeyIsAConflict) {
  StartReady("he");
  const std::unique_ptr<Reader> first = Ask(Keyed("hi"));
  first->ReadTokens(2);
  const absl::Status other = Ask(Keyed("something else"))->ReadAll();
  EXPECT_THAT(other, FailsWith(FailureKind::kKeyConflict));
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  first->call->Cancel();
  EXPECT_FALSE(first->ReadAll().ok());
}

TEST_F(FailoverTest, AReattachThatMakesNoSenseIsRefused) {
  StartReady("he");
  v1::GenerateRequest request = TextRequest("hi");
  request.mutable_reattach();
  EXPECT_THAT(Ask(request)->ReadAll(), FailsWith(FailureKind::kInvalidRequest));
  request.mutable_reattach()->set_session(7);
  request.mutable_reattach()->add_tokens_held(1 << 20);
  EXPECT_THAT(Ask(request)->ReadAll(), FailsWith(FailureKind::kInvalidRequest));
  request = TextRequest("hi");
  request.set_idempotency_key(std::string(257, 'k'));
  EXPECT_THAT(Ask(request)->ReadAll(), FailsWith(FailureKind::kInvalidRequest));
}

}  // namespace
}  // namespace shardline::testing
