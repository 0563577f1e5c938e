// Rules on a text hold over real processes, whatever dies on the way (case R5 of the gRPC kind).

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <string>
#include <string_view>

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/same_answer.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::LoadModelRequest Model(uint32_t replicas) {
  v1::LoadModelRequest request;
  request.set_path(GoldenModelPath());
  request.set_name("smollm2");
  request.set_context_tokens_max(512);
  request.set_replicas(replicas);
  for (const uint32_t begin : {0U, 15U}) {
    v1::LayerRange* range = request.add_ranges();
    range->set_begin(begin);
    range->set_end(begin + 15);
  }
  return request;
}

v1::GenerateRequest Ruled(const std::string& grammar) {
  v1::GenerateRequest request = Greedy("The quick brown fox", 200);
  request.mutable_sampling()->set_temperature(0.8F);
  request.mutable_sampling()->set_seed(7);
  request.mutable_rules()->set_grammar(grammar);
  return request;
}

TEST(TextRulesTest, RulesHoldAndBadOnesAreRefused) {
  Cluster cluster({.nodes = 2});
  ASSERT_THAT(cluster.LoadModel(Model(1)), IsOk());

  const Answer exact = cluster.Generate(Ruled("root ::= \"exactly this, \\u20ac\\n\""));
  ASSERT_THAT(exact.status, IsOk());
  EXPECT_EQ(exact.text, "exactly this, \u20ac\n");
  ASSERT_TRUE(exact.end.has_value());
  EXPECT_EQ(exact.end->reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(exact.end->generated_tokens(), exact.tokens.size());

  v1::GenerateRequest free = Greedy("The quick brown fox", 60);
  const Answer whole = cluster.Generate(free);
  ASSERT_GT(whole.text.size(), 40U);
  const std::string stop = whole.text.substr(20, 7);
  free.mutable_rules()->add_stop_texts(stop);
  const Answer stopped = cluster.Generate(free);
  ASSERT_THAT(stopped.status, IsOk());
  EXPECT_THAT(whole.text, StartsWith(stopped.text));
  EXPECT_THAT(stopped.text, HasSubstr(stop));
  EXPECT_LE(stopped.text.size(), 27U + 16U);
  EXPECT_EQ(stopped.end->reason(), v1::FINISH_REASON_STOP);

  const Answer bad = cluster.Generate(Ruled("root ::= \"a"));
  EXPECT_THAT(bad.status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(bad.status.message()), HasSubstr("1:10"));
  const Answer left = cluster.Generate(Ruled("root ::= root \"a\" | \"b\""));
  EXPECT_THAT(left.status, FailsWith(FailureKind::kInvalidRequest));
  ExpectSame(cluster.Generate(Greedy("The quick brown fox", 60)), whole);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

TEST(TextRulesTest, AKilledHeadIsReplacedInTheMiddleOfAGrammarAndNothingShows) {
  Cluster cluster({.nodes = 4});
  ASSERT_THAT(cluster.LoadModel(Model(2)), IsOk());
  ASSERT_TRUE(cluster.UntilAllProven(absl::Seconds(60)));
  v1::GenerateRequest request = Ruled(
      "root ::= \"{\" pair (\", \" pair){11} \"}\"\npair ::= \"\\\"\" [a-z]{3,9} \"\\\": \" "
      "[0-9]{1,4}");
  const Answer calm = cluster.Generate(request);
  ASSERT_THAT(calm.status, IsOk());
  EXPECT_THAT(calm.text, StartsWith("{\""));
  EXPECT_THAT(calm.text, EndsWith("}"));
  EXPECT_EQ(calm.end->reason(), v1::FINISH_REASON_STOP);

  v1::GenerateStarted started;
  const Answer disturbed = cluster.Generate(
      request,
      [&](int count) {
        if (count == 15) cluster.node(started.route(0).node_id().back() - 'a').Signal(SIGKILL);
      },
      [&](const v1::GenerateStarted& event) { started = event; });
  ExpectSame(disturbed, calm);
  EXPECT_EQ(disturbed.restarts.size(), 1U);
  EXPECT_EQ(disturbed.end->reason(), v1::FINISH_REASON_STOP);
  EXPECT_TRUE(cluster.Until(absl::Seconds(5), AllPagesFree));
}

}  // namespace
}  // namespace shardline::testing
