#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/metrics/metrics_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/node_metrics.h"
#include "tests/support/scrape.h"

namespace shardline::testing {
namespace {

using ::testing::Contains;
using ::testing::Pair;

TEST(NodeMetricsTest, AScrapeShowsTheFiguresUnderTheirNames) {
  NodeFigures figures;
  figures.steps_committed = 90;
  figures.steps_replayed = 2;
  figures.refusals[static_cast<size_t>(FailureKind::kStepConflict)] = 7;
  figures.link_resets = 4;
  figures.resumes_certain = 3;
  figures.resumes_uncertain = 1;
  figures.checksum_failures = 5;
  figures.peers_silent = 1;
  figures.attempts_open = 6;
  figures.attempts_expired = 8;
  figures.kv_pages_free = 30;
  figures.kv_pages_total = 64;
  auto server = MetricsServer::Start("127.0.0.1:0", [&] { return NodeMetrics(figures); });
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics((*server)->port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_THAT(*scrape, Contains(Pair("shardline_steps_total{result=\"committed\"}", 90)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_steps_total{result=\"replayed\"}", 2)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_step_refusals_total{kind=\"step_conflict\"}", 7)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_link_resets_total", 4)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_resumes_total{result=\"certain\"}", 3)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_resumes_total{result=\"uncertain\"}", 1)));
  EXPECT_THAT(*scrape,
              Contains(Pair("shardline_checksum_failures_total{stage=\"activation\"}", 5)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_peers_silent", 1)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_attempts_open", 6)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_attempts_ended_total{by=\"deadline\"}", 8)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_kv_pages{state=\"free\"}", 30)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_kv_pages{state=\"total\"}", 64)));
  for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
    const std::string name(FailureKindName(static_cast<FailureKind>(kind)));
    EXPECT_TRUE(
        scrape->contains(absl::StrCat("shardline_step_refusals_total{kind=\"", name, "\"}")))
        << name;
  }
}

TEST(NodeMetricsTest, NamesKeepTheRules) {
  for (const MetricFamily& family : NodeMetrics({})) {
    EXPECT_TRUE(absl::StartsWith(family.name, "shardline_")) << family.name;
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == MetricType::kCounter)
        << family.name;
    EXPECT_EQ(family.help.back(), '.') << family.name;
  }
}

}  // namespace
}  // namespace shardline::testing
