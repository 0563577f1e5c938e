#include "node/node_metrics.h"

namespace shardline {
namespace {

MetricFamily KvPages(const NodeFigures& figures) {
  return {"shardline_kv_pages",
          "KV pages by state.",
          MetricType::kGauge,
          {{.labels = {{"state", "free"}}, .value = static_cast<double>(figures.kv_pages_free)},
           {.labels = {{"state", "total"}}, .value = static_cast<double>(figures.kv_pages_total)}}};
}

}  // namespace

std::vector<MetricFamily> NodeMetrics(const NodeFigures& f) {
  return {
      LabelledCounter("shardline_steps_total", "Steps that arrived, by what became of them.",
                      "result",
                      {{"committed", f.steps_committed},
                       {"refused", f.steps_refused},
                       {"replayed", f.steps_replayed},
                       {"in_flight", f.steps_in_flight},
                       {"discarded", f.steps_discarded},
                       {"resent", f.steps_resent}}),
      Counter("shardline_tokens_committed_total", "Tokens whose KV was committed.",
              f.tokens_committed),
      CounterByKind("shardline_step_refusals_total", "Steps refused, by kind.", f.refusals),
      Counter("shardline_link_resets_total", "Attempts whose steps a link reset put in doubt.",
              f.link_resets),
      LabelledCounter("shardline_resumes_total", "Doubts after a reset, by how they ended.",
                      "result",
                      {{"certain", f.resumes_certain}, {"uncertain", f.resumes_uncertain}}),
      Counter("shardline_bundles_shut_out_total", "Bundles of connections that were replaced.",
              f.bundles_shut_out),
      LabelledCounter("shardline_checksum_failures_total", "Checksums that did not match.", "stage",
                      {{"activation", f.checksum_failures}}),
      Gauge("shardline_peers_silent", "Neighbours this node cannot hear.", f.peers_silent),
      Counter("shardline_attempts_opened_total", "Attempts opened here.", f.attempts_opened),
      Counter("shardline_opens_refused_total", "OPENs refused.", f.opens_refused),
      LabelledCounter("shardline_attempts_ended_total", "Attempts ended here, by what did it.",
                      "by",
                      {{"fence", f.attempts_fenced},
                       {"deadline", f.attempts_expired},
                       {"live_list", f.attempts_unlisted}}),
      Counter("shardline_fences_ignored_total", "Fences of an older term.", f.fences_ignored),
      Gauge("shardline_attempts_open", "Attempts open here.", f.attempts_open),
      KvPages(f),
      Gauge("shardline_incarnation", "The node's present life.",
            static_cast<double>(f.incarnation)),
      Gauge("shardline_ready", "1 while the node holds a shard.", f.has_shard ? 1 : 0),
  };
}

}  // namespace shardline
