// /metrics of a coordinator that serves: the figures are those of its cores.

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/fake_node.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/scrape.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

class ScrapeTest : public ::testing::Test {
 protected:
  void StartReady() {
    cluster_.options().metrics_listen = "127.0.0.1:0";
    ASSERT_THAT(cluster_.Start(), IsOk());
    node_.Join(cluster_.port());
    ASSERT_TRUE(cluster_.WaitUntilNodes(1));
    node_.SetAnswer({.tokens = ByteTokens("hello")});
    ASSERT_THAT(cluster_.Load(1), IsOk());
  }

  double Value(const std::string& sample) {
    const absl::StatusOr<Scrape> scrape = ScrapeMetrics(cluster_.metrics_port());
    EXPECT_THAT(scrape, IsOk());
    if (!scrape.ok()) return -1;
    const auto found = scrape->find(sample);
    EXPECT_NE(found, scrape->end()) << sample;
    return found == scrape->end() ? -1 : found->second;
  }

  TestCluster cluster_;
  FakeNode node_{{.id = "node-a"}};
};

TEST_F(ScrapeTest, ACompletedSessionIsCountedWithItsTokens) {
  StartReady();
  const double completed = Value("shardline_sessions_total{outcome=\"completed\"}");
  const double delivered = Value("shardline_tokens_delivered_total");
  ASSERT_TRUE(cluster_.Generate("hi").status.ok());
  EXPECT_EQ(Value("shardline_sessions_total{outcome=\"completed\"}"), completed + 1);
  EXPECT_EQ(Value("shardline_tokens_delivered_total"), delivered + 5);
  EXPECT_EQ(Value("shardline_scrape_ok"), 1);
  EXPECT_EQ(Value("shardline_ready"), 1);
  EXPECT_EQ(Value("shardline_sessions_running"), 0);
  EXPECT_EQ(Value("shardline_node_up{node=\"node-a\"}"), 1);
}

TEST_F(ScrapeTest, WhatAClientIsToldIsCountedUnderItsKind) {
  StartReady();
  EXPECT_EQ(Value("shardline_failures_total{kind=\"invalid_request\"}"), 0);
  EXPECT_THAT(cluster_.Generate("").status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_EQ(Value("shardline_failures_total{kind=\"invalid_request\"}"), 1);
  EXPECT_EQ(Value("shardline_failures_total{kind=\"poison\"}"), 0);
}

TEST_F(ScrapeTest, AnAddressThatIsTakenStopsTheStartAndIsNamed) {
  StartReady();
  TestCluster second;
  second.options().metrics_listen = absl::StrCat("127.0.0.1:", cluster_.metrics_port());
  const absl::Status status = second.Start();
  EXPECT_THAT(status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(status.message()), HasSubstr(second.options().metrics_listen));
}

}  // namespace
}  // namespace shardline::testing
