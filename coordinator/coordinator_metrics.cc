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

MetricFamily Duties(const CoordinatorFigures& figures) {
  MetricFamily family{"shardline_nodes", "Known nodes by what they do.", MetricType::kGauge, {}};
  for (const char* state : {"serving", "cordoned", "draining", "drained", "lost"}) {
    double count = 0;
    for (const CoordinatorFigures::Node& node : figures.nodes) {
      count += (node.up ? node.duty : "lost") == state ? 1 : 0;
    }
    family.samples.push_back({.labels = {{"state", state}}, .value = count});
  }
  return family;
}

MetricFamily Times(const char* name, const char* help, const Histogram& histogram) {
  return {name, help, MetricType::kHistogram, {{.histogram = histogram}}};
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
      Gauge("shardline_requests_waiting", "Requests that wait for room or for their turn.",
            f.requests_waiting),
      Gauge("shardline_queue_capacity_requests", "Requests that may wait.", f.queue_capacity),
      LabelledCounter("shardline_request_rejections_total", "Requests refused at admission.",
                      "reason",
                      {{"queue_full", f.refused_queue_full}, {"too_large", f.refused_too_large}}),
      Times("shardline_request_queue_seconds", "Time in the queue of requests that were let in.",
            f.queue_seconds),
      LabelledCounter("shardline_queue_turns_total", "Turns of waiting requests, by result.",
                      "result",
                      {{"let_in", f.turns - f.turns_refused}, {"no_room", f.turns_refused}}),
      Counter("shardline_queue_passes_total", "Times a request passed one that found no room.",
              f.passes),
      Counter("shardline_attempts_without_room_total", "Attempts refused for pages or slots.",
              f.attempts_without_room),
      Times("shardline_head_queue_seconds", "Time runs waited for a slot at their head.",
            f.head_queue_seconds),
      Times("shardline_gap_rounds", "Most rounds between two tokens of a run.", f.gap_rounds),
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
      Duties(f),
      LastBeats(f),
      Replans(f),
      Gauge("shardline_term", "The coordinator's term.", static_cast<double>(f.term)),
      Gauge("shardline_ready", "1 while the process answers ready.", f.ready ? 1 : 0),
      Gauge("shardline_draining", "1 while the process is about to stop.", f.draining ? 1 : 0),
  };
}

}  // namespace shardline
