// /metrics of a node, and that its figures are those of its stage.

#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/metrics/metrics_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/model_shard_loader.h"
#include "node/node.h"
#include "node/stage_figures.h"
#include "tests/node/fake_coordinator.h"
#include "tests/support/scrape.h"

namespace shardline::testing {
namespace {

using ::testing::Contains;
using ::testing::Pair;

NodeOptions OptionsFor(const FakeCoordinator& coordinator) {
  NodeOptions options;
  options.coordinator = coordinator.address();
  options.node_id = NodeId("node-a");
  options.memory_bytes = 1 << 30;
  options.threads = 1;
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

TEST(NodeScrapeTest, ANodeAnswersWithoutAShardToo) {
  FakeCoordinator coordinator;
  ModelShardLoader loader({.memory_bytes = 1 << 30, .threads = 1});
  const auto node = Node::Start(OptionsFor(coordinator), &loader, SystemClock());
  ASSERT_TRUE(node.ok()) << node.status();
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics((*node)->metrics_port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_THAT(*scrape, Contains(Pair("shardline_scrape_ok", 1)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_ready", 0)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_attempts_open", 0)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_rounds_total", 0)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_draining", 0)));
}

TEST(NodeScrapeTest, AnAddressThatIsTakenStopsTheStart) {
  FakeCoordinator coordinator;
  ModelShardLoader loader({.memory_bytes = 1 << 30, .threads = 1});
  const auto first = Node::Start(OptionsFor(coordinator), &loader, SystemClock());
  ASSERT_TRUE(first.ok()) << first.status();
  NodeOptions options = OptionsFor(coordinator);
  options.metrics_listen = absl::StrCat("127.0.0.1:", (*first)->metrics_port());
  const auto second = Node::Start(options, &loader, SystemClock());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(FailureKindOf(second.status()), FailureKind::kInvalidRequest);
}

TEST(NodeScrapeTest, TheFiguresOfTwoLivesAddUp) {
  NodeFigures figures;
  StageStats stats;
  stats.rows_committed = 5;
  stats.rows_replayed = 1;
  stats.attempts_expired = 2;
  stats.refusals[static_cast<size_t>(FailureKind::kStepConflict)] = 4;
  AddStage(stats, figures);
  AddStage(stats, figures);
  EXPECT_EQ(figures.steps_committed, 10u);
  EXPECT_EQ(figures.steps_replayed, 2u);
  EXPECT_EQ(figures.attempts_expired, 4u);
  EXPECT_EQ(figures.refusals[static_cast<size_t>(FailureKind::kStepConflict)], 8u);
}

TEST(NodeScrapeTest, RoundsDraftsPlansAndPrefixesShowUnderTheirNames) {
  NodeFigures figures;
  HeadStats head;
  head.rounds = 7;
  head.rows = 20;
  head.decode_rows = 15;
  head.rounds_of_rows[2] = 7;
  head.rounds_promoted = 4;
  head.rounds_dropped = 2;
  head.tokens_drafted = 9;
  head.tokens_accepted = 6;
  head.refusals[static_cast<size_t>(FailureKind::kOverloaded)] = 3;
  AddHead(head, figures);
  AddPrefixes({.lookups = 4, .hits = 2, .hit_tokens = 64, .published = 8, .evictions = 1}, figures);
  StageStats stage;
  stage.plans_staged = 5;
  stage.plans_displaced = 1;
  AddStage(stage, figures);
  const auto server = MetricsServer::Start("127.0.0.1:0", [&] { return NodeMetrics(figures); });
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics((*server)->port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_THAT(*scrape, Contains(Pair("shardline_rounds_total", 7)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_round_rows_total{kind=\"decode\"}", 15)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_round_rows_total{kind=\"piece\"}", 5)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_rounds_by_rows_total{rows=\"4\"}", 7)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_rounds_ahead_total{result=\"promoted\"}", 4)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_rounds_ahead_total{result=\"dropped\"}", 2)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_spec_accepted_tokens_total", 6)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_run_refusals_total{kind=\"overloaded\"}", 3)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_prefix_cache_hit_tokens_total", 64)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_prefix_cache_evictions_total", 1)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_plans_total{result=\"displaced\"}", 1)));
}

}  // namespace
}  // namespace shardline::testing
