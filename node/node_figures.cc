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
  figures.jobs += stats.jobs;
  figures.plans_promoted += stats.plans_promoted;
  figures.plans_displaced += stats.plans_displaced;
  figures.plans_staged += stats.plans_staged;
  figures.plans_ignored += stats.plans_ignored;
}

void AddPrefixes(const PrefixStats& stats, NodeFigures& figures) {
  figures.prefix_lookups += stats.lookups;
  figures.prefix_hits += stats.hits;
  figures.prefix_hit_tokens += stats.hit_tokens;
  figures.prefix_published += stats.published;
  figures.prefix_evictions += stats.evictions;
}

void AddHead(const HeadStats& stats, NodeFigures& figures) {
  figures.runs_started += stats.attempts_started;
  figures.runs_failed += stats.attempts_failed;
  figures.runs_waited += stats.attempts_waited;
  figures.runs_skipped += stats.attempts_skipped;
  for (size_t kind = 0; kind < stats.refusals.size(); ++kind) {
    figures.run_refusals[kind] += stats.refusals[kind];
  }
  figures.rounds += stats.rounds;
  figures.decode_rows += stats.decode_rows;
  figures.piece_rows += stats.rows - stats.decode_rows;
  figures.piece_tokens += stats.piece_tokens;
  for (size_t size = 0; size < stats.rounds_of_rows.size(); ++size) {
    figures.rounds_of_rows[size] += stats.rounds_of_rows[size];
  }
  figures.rounds_staged += stats.rounds_staged;
  figures.rounds_promoted += stats.rounds_promoted;
  figures.rounds_displaced += stats.rounds_displaced;
  figures.rounds_dropped += stats.rounds_dropped;
  figures.rounds_refused += stats.rounds_refused;
  figures.draft_tokens += stats.tokens_drafted;
  figures.draft_tokens_accepted += stats.tokens_accepted;
  figures.step_timeouts += stats.step_timeouts;
}

void Node::AddLife(NodeFigures& figures) const {
  AddStage(loop_->stage_stats(), figures);
  AddPrefixes(loop_->kv().prefix_stats(), figures);
  if (loop_->head_stats() != nullptr) AddHead(*loop_->head_stats(), figures);
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
  if (loop_ != nullptr) {
    AddLife(figures);
    figures.kv_pages_cached_idle = static_cast<uint32_t>(loop_->kv().pages_cached_idle());
    figures.kv_pages_cached_held = static_cast<uint32_t>(loop_->kv().pages_cached_held());
  }
  if (loop_ != nullptr && loop_->head() != nullptr) {
    figures.runs_running = static_cast<uint32_t>(loop_->head()->attempts_running());
    figures.runs_queued = static_cast<uint32_t>(loop_->head()->attempts_queued());
    figures.rounds_in_flight = static_cast<uint32_t>(loop_->head()->rounds_in_flight());
  }
  figures.attempts_open = counters_.attempts_open;
  figures.kv_pages_total = counters_.kv_pages_total;
  figures.kv_pages_free = counters_.kv_pages_free;
  figures.incarnation = incarnation_.value();
  figures.has_shard = loop_ != nullptr;
  absl::MutexLock lock(&mu_);
  figures.draining = leaving_.has_value();
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
