#include "coordinator/coordinator_metrics.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/metrics/metrics_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scrape.h"

namespace shardline::testing {
namespace {

using ::testing::Contains;
using ::testing::Pair;

Scrape ScrapeOf(const CoordinatorFigures& figures) {
  auto server = MetricsServer::Start("127.0.0.1:0", [&] { return CoordinatorMetrics(figures); });
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok()) return {};
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics((*server)->port());
  EXPECT_TRUE(scrape.ok()) << scrape.status();
  return scrape.value_or(Scrape());
}

TEST(CoordinatorMetricsTest, AScrapeShowsTheFiguresUnderTheirNames) {
  CoordinatorFigures figures;
  figures.sessions_started = 11;
  figures.sessions_completed = 5;
  figures.sessions_expired = 2;
  figures.sessions_running = 3;
  figures.attempts_fenced = 4;
  figures.fences_failed = 6;
  figures.tokens_delivered = 700;
  figures.tokens_billed = 500;
  figures.failover_seconds.Observe(0.2);
  figures.nodes = {{.id = "a", .up = true, .last_beat_unix_s = 1e9}, {.id = "b", .up = false}};
  figures.replans = {{.model = "m", .reason = "failure", .count = 2}};
  figures.nodes[0].duty = "cordoned";
  figures.requests_waiting = 7;
  figures.refused_queue_full = 8;
  figures.turns = 9;
  figures.turns_refused = 3;
  figures.queue_seconds.Observe(0.5);
  figures.gap_rounds = Histogram({1, 2, 4});
  figures.gap_rounds.Observe(2);
  const Scrape scrape = ScrapeOf(figures);
  EXPECT_THAT(scrape, Contains(Pair("shardline_requests_waiting", 7)));
  EXPECT_THAT(scrape,
              Contains(Pair("shardline_request_rejections_total{reason=\"queue_full\"}", 8)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_queue_turns_total{result=\"let_in\"}", 6)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_request_queue_seconds_count", 1)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_gap_rounds_sum", 2)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_nodes{state=\"cordoned\"}", 1)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_nodes{state=\"lost\"}", 1)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_sessions_started_total", 11)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_sessions_total{outcome=\"completed\"}", 5)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_sessions_total{outcome=\"expired\"}", 2)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_sessions_running", 3)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_attempts_total{state=\"fenced\"}", 4)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_fences_total{result=\"failed\"}", 6)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_tokens_delivered_total", 700)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_tokens_billed_total", 500)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_failover_duration_seconds_count", 1)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_node_up{node=\"a\"}", 1)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_node_up{node=\"b\"}", 0)));
  EXPECT_THAT(scrape,
              Contains(Pair("shardline_node_last_heartbeat_timestamp_seconds{node=\"a\"}", 1e9)));
  EXPECT_THAT(scrape, Contains(Pair("shardline_replans_total{model=\"m\",reason=\"failure\"}", 2)));
}

TEST(CoordinatorMetricsTest, EveryKindIsThereBeforeItHappens) {
  const Scrape scrape = ScrapeOf({});
  for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
    const std::string label = absl::StrCat(
        "{kind=\"", std::string(FailureKindName(static_cast<FailureKind>(kind))), "\"}");
    EXPECT_THAT(scrape, Contains(Pair(absl::StrCat("shardline_failures_total", label), 0)));
    EXPECT_THAT(scrape, Contains(Pair(absl::StrCat("shardline_restarts_total", label), 0)));
  }
}

TEST(CoordinatorMetricsTest, NamesKeepTheRules) {
  for (const MetricFamily& family : CoordinatorMetrics({})) {
    EXPECT_TRUE(absl::StartsWith(family.name, "shardline_")) << family.name;
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == MetricType::kCounter)
        << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.help.back(), '.') << family.name;
  }
}

}  // namespace
}  // namespace shardline::testing
