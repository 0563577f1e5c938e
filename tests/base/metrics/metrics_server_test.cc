#include "base/metrics/metrics_server.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scrape.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

std::unique_ptr<MetricsServer> Serve(MetricsServer::Collect collect) {
  auto server = MetricsServer::Start("127.0.0.1:0", std::move(collect));
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(MetricsServerTest, EveryScrapeAsksForTheFiguresAnew) {
  uint64_t count = 41;
  auto server = Serve([&count]() -> absl::StatusOr<std::vector<MetricFamily>> {
    return std::vector<MetricFamily>{Counter("shardline_events_total", "Events.", ++count)};
  });
  for (const double expected : {42.0, 43.0}) {
    const absl::StatusOr<Scrape> scrape = ScrapeMetrics(server->port());
    ASSERT_TRUE(scrape.ok()) << scrape.status();
    EXPECT_THAT(*scrape, Contains(Pair("shardline_events_total", expected)));
    EXPECT_THAT(*scrape, Contains(Pair("shardline_scrape_ok", 1)));
  }
}

TEST(MetricsServerTest, EveryFailureKindIsThereFromTheStart) {
  KindCounts counts = {};
  counts[static_cast<size_t>(FailureKind::kPoison)] = 3;
  auto server = Serve([&counts]() -> absl::StatusOr<std::vector<MetricFamily>> {
    return std::vector<MetricFamily>{CounterByKind("shardline_failures_total", "By kind.", counts)};
  });
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics(server->port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
    const std::string name(FailureKindName(static_cast<FailureKind>(kind)));
    EXPECT_THAT(*scrape,
                Contains(Pair(absl::StrCat("shardline_failures_total{kind=\"", name, "\"}"),
                              static_cast<double>(counts[static_cast<size_t>(kind)]))));
  }
}

TEST(MetricsServerTest, AHistogramCountsEachValueInItsRangeAndInAllAbove) {
  Histogram histogram({0.5, 1, 2});
  for (const double value : {0.1, 0.5, 1.5, 9.0}) histogram.Observe(value);
  auto server = Serve([&histogram]() -> absl::StatusOr<std::vector<MetricFamily>> {
    return std::vector<MetricFamily>{
        {"shardline_x_seconds", "X.", MetricType::kHistogram, {{.histogram = histogram}}}};
  });
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics(server->port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_THAT(*scrape, Contains(Pair("shardline_x_seconds_bucket{le=\"0.5\"}", 2)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_x_seconds_bucket{le=\"1\"}", 2)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_x_seconds_bucket{le=\"2\"}", 3)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_x_seconds_bucket{le=\"+Inf\"}", 4)));
  EXPECT_THAT(*scrape, Contains(Pair("shardline_x_seconds_sum", 11.1)));
}

TEST(MetricsServerTest, AProcessThatDoesNotAnswerSaysSo) {
  auto server = Serve([]() -> absl::StatusOr<std::vector<MetricFamily>> {
    return absl::ResourceExhaustedError("busy");
  });
  const absl::StatusOr<Scrape> scrape = ScrapeMetrics(server->port());
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_THAT(*scrape, Contains(Pair("shardline_scrape_ok", 0)));
}

TEST(MetricsServerTest, ATakenPortAndANonsenseAddressAreErrorsThatNameThem) {
  const auto nothing = []() -> absl::StatusOr<std::vector<MetricFamily>> {
    return std::vector<MetricFamily>();
  };
  auto first = Serve(nothing);
  for (const std::string& listen :
       {absl::StrCat("127.0.0.1:", first->port()), std::string("nowhere:port")}) {
    const auto second = MetricsServer::Start(listen, nothing);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(FailureKindOf(second.status()), FailureKind::kInvalidRequest);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(listen));
  }
}

}  // namespace
}  // namespace shardline::testing
