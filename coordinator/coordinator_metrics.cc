#include "coordinator/coordinator_metrics.h"

#include <utility>

namespace shardline {
namespace {

MetricFamily NodesUp(const CoordinatorFigures& figures) {
  MetricFamily family{"shardline_node_up",
                      "1 while a node is a member, 0 once it is lost.",
                      MetricType::kGauge,
                      {}};
  for (const CoordinatorFigures::Node& node : figures.nodes) {
    family.samples.push_back({.labels = {{"node", node.id}}, .value = node.up ? 1.0 : 0.0});
  }
  return family;
}

MetricFamily LastBeats(const CoordinatorFigures& figures) {
  MetricFamily family{"shardline_node_last_heartbeat_timestamp_seconds",
                      "Unix time of a node's last echoed heartbeat.",
                      MetricType::kGauge,
                      {}};
  for (const CoordinatorFigures::Node& node : figures.nodes) {
    family.samples.push_back({.labels = {{"node", node.id}}, .value = node.last_beat_unix_s});
  }
  return family;
}

MetricFamily Replans(const CoordinatorFigures& figures) {
  MetricFamily family{
      "shardline_replans_total", "Placement plans made, by why.", MetricType::kCounter, {}};
  for (const CoordinatorFigures::Replans& replan : figures.replans) {
    family.samples.push_back({.labels = {{"model", replan.model}, {"reason", replan.reason}},
                              .value = static_cast<double>(replan.count)});
  }
  return family;
}

MetricFamily Failovers(const CoordinatorFigures& figures) {
  return {"shardline_failover_duration_seconds",
          "Failure of an attempt to the next token of its session.",
          MetricType::kHistogram,
          {{.histogram = figures.failover_seconds}}};
}

}  // namespace

std::vector<MetricFamily> CoordinatorMetrics(const CoordinatorFigures& f) {
  return {
      Counter("shardline_sessions_started_total", "Requests for a session.", f.sessions_started),
      LabelledCounter("shardline_sessions_total", "Requests that ended, by outcome.", "outcome",
                      {{"completed", f.sessions_completed},
                       {"failed", f.sessions_failed},
                       {"cancelled", f.sessions_cancelled},
                       {"expired", f.sessions_expired},
                       {"refused", f.sessions_refused},
                       {"attached", f.sessions_attached},
                       {"replayed", f.sessions_replayed}}),
      Gauge("shardline_sessions_running", "Requests that have not ended.", f.sessions_running),
      Counter("shardline_attempts_granted_total", "Attempts granted.", f.attempts_granted),
      LabelledCounter("shardline_attempts_total", "Attempts that ended, by their record.", "state",
                      {{"completed", f.attempts_completed},
                       {"failed", f.attempts_failed},
                       {"cancelled", f.attempts_cancelled},
                       {"expired", f.attempts_expired},
                       {"fenced", f.attempts_fenced},
                       {"unverified", f.attempts_unverified}}),
      CounterByKind("shardline_failures_total", "Failures told to clients, by kind.", f.failures),
      CounterByKind("shardline_restarts_total", "Sessions restarted, by what failed.", f.restarts),
      Counter("shardline_restarts_paced_total", "Restarts that waited for the restart budget.",
              f.restarts_paced),
      Failovers(f),
      LabelledCounter("shardline_fences_total", "Fences sent to stages, by result.", "result",
                      {{"answered", f.fences_answered},
                       {"failed", f.fences_failed},
                       {"resent", f.fences_resent}}),
      Counter("shardline_tokens_delivered_total", "Tokens sent to clients.", f.tokens_delivered),
      Counter("shardline_tokens_billed_total", "Tokens of completed sessions.", f.tokens_billed),
      Counter("shardline_tokens_dropped_total",
              "Tokens that came late, twice or from an old epoch.", f.tokens_dropped),
      Counter("shardline_kv_pages_released_total", "KV pages that fences gave back.",
              f.pages_released),
      Counter("shardline_record_retries_total", "Terminal records the store refused at first.",
              f.record_retries),
      NodesUp(f),
      LastBeats(f),
      Replans(f),
      Gauge("shardline_term", "The coordinator's term.", static_cast<double>(f.term)),
      Gauge("shardline_ready", "1 while the process answers ready.", f.ready ? 1 : 0),
  };
}

}  // namespace shardline
