#include "node/node_metrics.h"

#include <string>
#include <utility>

namespace shardline {
namespace {

MetricFamily KvPages(const NodeFigures& figures) {
  return {"shardline_kv_pages",
          "KV pages by state; those cached_free are among the free ones.",
          MetricType::kGauge,
          {{.labels = {{"state", "free"}}, .value = static_cast<double>(figures.kv_pages_free)},
           {.labels = {{"state", "cached_free"}},
            .value = static_cast<double>(figures.kv_pages_cached_idle)},
           {.labels = {{"state", "cached_held"}},
            .value = static_cast<double>(figures.kv_pages_cached_held)},
           {.labels = {{"state", "total"}}, .value = static_cast<double>(figures.kv_pages_total)}}};
}

// Sizes double, and the last one is open.
MetricFamily RoundsBySize(const NodeFigures& figures) {
  MetricFamily family{"shardline_rounds_by_rows_total",
                      "Rounds begun here, by how many rows they have at most.",
                      MetricType::kCounter,
                      {}};
  for (size_t i = 0; i < figures.rounds_of_rows.size(); ++i) {
    const bool last = i + 1 == figures.rounds_of_rows.size();
    family.samples.push_back(
        {.labels = {{"rows", last ? std::string("more") : std::to_string(1U << i)}},
         .value = static_cast<double>(figures.rounds_of_rows[i])});
  }
  return family;
}

// What the head does: empty figures elsewhere.
std::vector<MetricFamily> HeadMetrics(const NodeFigures& f) {
  return {
      Counter("shardline_runs_started_total", "Runs taken by this head.", f.runs_started),
      Counter("shardline_runs_failed_total", "Of those, runs that failed.", f.runs_failed),
      LabelledCounter("shardline_runs_delayed_total", "Runs that waited, by for what.", "for",
                      {{"slot", f.runs_waited}, {"tenant", f.runs_skipped}}),
      CounterByKind("shardline_run_refusals_total", "Runs refused by this head, by kind.",
                    f.run_refusals),
      Gauge("shardline_runs", "Runs at this head, waiting ones included.", f.runs_running),
      Gauge("shardline_runs_waiting", "Runs that wait for a slot of this head.", f.runs_queued),
      Counter("shardline_rounds_total", "Rounds begun by this head.", f.rounds),
      RoundsBySize(f),
      Gauge("shardline_rounds_in_flight", "Rounds on their way round the rings.",
            f.rounds_in_flight),
      LabelledCounter("shardline_rounds_ahead_total",
                      "Rounds this head prepared before their turn, and what became of them.",
                      "result",
                      {{"staged", f.rounds_staged},
                       {"promoted", f.rounds_promoted},
                       {"displaced", f.rounds_displaced},
                       {"dropped", f.rounds_dropped},
                       {"refused", f.rounds_refused}}),
      LabelledCounter("shardline_round_rows_total", "Rows of rounds.", "kind",
                      {{"decode", f.decode_rows}, {"piece", f.piece_rows}}),
      Counter("shardline_prompt_tokens_total", "Prompt tokens sent in pieces.", f.piece_tokens),
      Counter("shardline_spec_draft_tokens_total", "Draft tokens verified.", f.draft_tokens),
      Counter("shardline_spec_accepted_tokens_total", "Draft tokens that were right.",
              f.draft_tokens_accepted),
      Counter("shardline_step_timeouts_total", "Steps that did not return in time.",
              f.step_timeouts),
  };
}

std::vector<MetricFamily> StageMetrics(const NodeFigures& f) {
  return {
      Counter("shardline_jobs_total", "Jobs given to the device for steps.", f.jobs),
      LabelledCounter("shardline_plans_total", "Rounds announced, and what became of them here.",
                      "result",
                      {{"staged", f.plans_staged},
                       {"promoted", f.plans_promoted},
                       {"displaced", f.plans_displaced},
                       {"ignored", f.plans_ignored}}),
      Counter("shardline_prefix_cache_lookups_total", "OPENs that looked for cached pages.",
              f.prefix_lookups),
      Counter("shardline_prefix_cache_hits_total", "OPENs that found some.", f.prefix_hits),
      Counter("shardline_prefix_cache_hit_tokens_total", "Prompt tokens found cached.",
              f.prefix_hit_tokens),
      Counter("shardline_prefix_cache_published_pages_total", "Pages that can be found.",
              f.prefix_published),
      Counter("shardline_prefix_cache_evictions_total", "Cached pages handed to others.",
              f.prefix_evictions),
  };
}

}  // namespace

std::vector<MetricFamily> NodeMetrics(const NodeFigures& f) {
  std::vector<MetricFamily> families = {
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
      Gauge("shardline_draining", "1 while the node is about to leave.", f.draining ? 1 : 0),
  };
  for (MetricFamily& family : HeadMetrics(f)) families.push_back(std::move(family));
  for (MetricFamily& family : StageMetrics(f)) families.push_back(std::move(family));
  return families;
}

}  // namespace shardline
