// A node's figures: what its cores count, gathered on the strand when somebody asks.

#include <memory>

#include "absl/synchronization/notification.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "node/node.h"
#include "node/stage_figures.h"

namespace shardline {
namespace {

constexpr absl::Duration kStrandAnswers = absl::Seconds(1);

}  // namespace

void AddStage(const StageStats& stats, NodeFigures& figures) {
  figures.steps_committed += stats.rows_committed;
  figures.tokens_committed += stats.tokens_committed;
  figures.steps_replayed += stats.rows_replayed;
  figures.steps_in_flight += stats.rows_in_flight_copies;
  figures.steps_discarded += stats.rows_discarded;
  figures.steps_refused += stats.rows_refused;
  for (size_t kind = 0; kind < stats.refusals.size(); ++kind) {
    figures.refusals[kind] += stats.refusals[kind];
  }
  figures.checksum_failures += stats.refusals[static_cast<size_t>(FailureKind::kChecksumMismatch)];
  figures.attempts_opened += stats.attempts_opened;
  figures.opens_refused += stats.opens_refused;
  figures.attempts_fenced += stats.attempts_fenced;
  figures.attempts_expired += stats.attempts_expired;
  figures.fences_ignored += stats.fences_ignored;
  figures.link_resets += stats.attempts_in_doubt;
  figures.resumes_certain += stats.attempts_resumed;
  figures.steps_resent += stats.rows_resent;
  figures.attempts_unlisted += stats.attempts_unlisted;
  figures.bundles_shut_out += stats.bundles_shut_out;
}

absl::Status Node::ServeMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  SL_ASSIGN_OR_RETURN(metrics_,
                      MetricsServer::Start(options_.metrics_listen, [this] { return Scrape(); }));
  LogInfo("metrics", {{"listen", options_.metrics_listen}, {"port", metrics_->port()}});
  return absl::OkStatus();
}

NodeFigures Node::Figures() const {
  NodeFigures figures = past_;
  if (loop_ != nullptr) AddStage(loop_->stage_stats(), figures);
  figures.attempts_open = counters_.attempts_open;
  figures.kv_pages_total = counters_.kv_pages_total;
  figures.kv_pages_free = counters_.kv_pages_free;
  figures.incarnation = incarnation_.value();
  figures.has_shard = loop_ != nullptr;
  return figures;
}

absl::StatusOr<std::vector<MetricFamily>> Node::Scrape() {
  struct Answer {
    NodeFigures figures;
    absl::Notification given;
  };
  auto answer = std::make_shared<Answer>();
  const bool posted = strand_.TryPost([this, answer] {
    answer->figures = Figures();
    answer->given.Notify();
  });
  if (!posted || !answer->given.WaitForNotificationWithTimeout(kStrandAnswers)) {
    return MakeFailure(FailureKind::kOverloaded, "the strand does not answer");
  }
  return NodeMetrics(answer->figures);
}

}  // namespace shardline
