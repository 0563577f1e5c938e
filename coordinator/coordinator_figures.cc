// The coordinator's figures: what its cores count, gathered on the loop when somebody asks.

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/gateway/gateway_metrics.h"

namespace shardline {
namespace {

constexpr absl::Duration kLoopAnswers = absl::Seconds(1);

void Fill(const SessionsStats& stats, CoordinatorFigures& figures) {
  figures.sessions_started = stats.started;
  figures.sessions_completed = stats.completed;
  figures.sessions_failed = stats.failed;
  figures.sessions_cancelled = stats.cancelled;
  figures.sessions_expired = stats.expired;
  figures.sessions_refused = stats.refused;
  figures.attempts_completed = stats.completed;
  figures.attempts_failed = stats.failed;
  figures.attempts_cancelled = stats.cancelled;
  figures.attempts_expired = stats.expired;
  figures.fences_answered = stats.fences_answered;
  figures.fences_failed = stats.fences_failed;
  figures.tokens_delivered = stats.tokens_delivered;
  figures.tokens_dropped = stats.tokens_dropped;
  figures.pages_released = stats.pages_released;
  figures.record_retries = stats.finish_retries;
  figures.sessions_attached = stats.attached;
  figures.sessions_replayed = stats.replayed;
  figures.attempts_granted = stats.attempts;
  figures.attempts_fenced = stats.attempts_fenced;
  figures.attempts_unverified = stats.attempts_unverified;
  figures.restarts = stats.restarts_by_kind;
  figures.failover_seconds = stats.failover_seconds;
  figures.tokens_billed = stats.tokens_billed;
  figures.restarts_paced = stats.restarts_paced;
  figures.fences_resent = stats.fences_resent;
  figures.refused_too_large = stats.too_large;
  figures.attempts_without_room = stats.without_room;
  figures.head_queue_seconds = stats.head_queue_seconds;
  figures.gap_rounds = stats.gap_rounds;
}

void Fill(const AdmissionQueue& queue, CoordinatorFigures& figures) {
  const AdmissionStats& stats = queue.stats();
  figures.requests_waiting = queue.waiting();
  figures.refused_queue_full = stats.refused;
  figures.turns = stats.tries;
  figures.turns_refused = stats.tries_refused;
  figures.passes = stats.passes;
  figures.queue_seconds = stats.wait_seconds;
}

}  // namespace

CoordinatorFigures Coordinator::Figures() {
  CoordinatorFigures figures;
  Fill(sessions_.stats(), figures);
  Fill(sessions_.queue(), figures);
  figures.queue_capacity = options_.queue;
  figures.sessions_running = sessions_.running_count();
  figures.failures = inference_.failures();
  // Wall time, for people alone: how long ago is what the cores know.
  const absl::Time wall = absl::Now();
  for (const NodeView& node : membership_.List(clock_->Now())) {
    figures.nodes.push_back(
        {.id = node.node.value(),
         .up = node.live,
         .duty = std::string(NodeDutyName(drains_.DutyOf(node.node))),
         .last_beat_unix_s = absl::ToDoubleSeconds(wall - node.since_echo - absl::UnixEpoch())});
  }
  for (const auto& [what, count] : models_.replans()) {
    figures.replans.push_back({.model = what.first, .reason = what.second, .count = count});
  }
  figures.term = term_.value();
  figures.ready = ready_told_;
  figures.draining = stopping_;
  return figures;
}

absl::StatusOr<std::vector<MetricFamily>> Coordinator::Scrape() {
  struct Answer {
    CoordinatorFigures figures;
    GatewayFigures gateway;
    HttpFigures http;
    absl::Notification given;
  };
  auto answer = std::make_shared<Answer>();
  const bool posted = loop_.TryPost([this, answer] {
    answer->figures = Figures();
    if (gateway_ != nullptr) answer->gateway = gateway_->figures();
    if (http_ != nullptr) answer->http = http_->figures();
    answer->given.Notify();
  });
  if (!posted || !answer->given.WaitForNotificationWithTimeout(kLoopAnswers)) {
    return MakeFailure(FailureKind::kOverloaded, "the loop does not answer");
  }
  std::vector<MetricFamily> families = CoordinatorMetrics(answer->figures);
  for (MetricFamily& family : GatewayMetrics(answer->gateway, answer->http)) {
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace shardline
