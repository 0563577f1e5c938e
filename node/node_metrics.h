#pragma once

// A node's figures under the names that operators watch.

#include <array>
#include <cstdint>
#include <vector>

#include "base/metrics/metric.h"

namespace shardline {

// One moment of a node. Counters cover the life of the process, over every life of its shard.
struct NodeFigures {
  uint64_t steps_committed = 0;
  uint64_t tokens_committed = 0;
  uint64_t steps_replayed = 0;   // Answered again from a retained output.
  uint64_t steps_in_flight = 0;  // Copies of a step that ran.
  uint64_t steps_discarded = 0;  // Computed, then found fenced.
  uint64_t steps_resent = 0;     // After a resume.
  KindCounts refusals = {};      // Of steps, by kind.
  uint64_t steps_refused = 0;

  uint64_t link_resets = 0;  // Times that a reset put an attempt's steps in doubt.
  uint64_t resumes_certain = 0;
  uint64_t resumes_uncertain = 0;
  uint64_t bundles_shut_out = 0;
  uint64_t checksum_failures = 0;
  uint32_t peers_silent = 0;

  uint64_t attempts_opened = 0;
  uint64_t opens_refused = 0;
  uint64_t attempts_fenced = 0;
  uint64_t attempts_expired = 0;
  uint64_t attempts_unlisted = 0;
  uint64_t fences_ignored = 0;

  // Of the head; zeros elsewhere.
  uint64_t runs_started = 0;
  uint64_t runs_failed = 0;
  uint64_t runs_waited = 0;  // For a slot.
  uint64_t runs_skipped = 0;
  KindCounts run_refusals = {};
  uint64_t rounds = 0;
  uint64_t decode_rows = 0;
  uint64_t piece_rows = 0;
  uint64_t piece_tokens = 0;
  std::array<uint64_t, 9> rounds_of_rows = {};  // HeadStats.
  uint64_t draft_tokens = 0;
  uint64_t draft_tokens_accepted = 0;
  uint64_t step_timeouts = 0;
  uint64_t rounds_staged = 0;  // Ahead of their turn, and what became of them.
  uint64_t rounds_promoted = 0;
  uint64_t rounds_displaced = 0;
  uint64_t rounds_dropped = 0;
  uint64_t rounds_refused = 0;
  uint32_t runs_running = 0;  // The waiting ones included.
  uint32_t runs_queued = 0;
  uint32_t rounds_in_flight = 0;

  uint64_t jobs = 0;
  uint64_t plans_staged = 0;
  uint64_t plans_promoted = 0;
  uint64_t plans_displaced = 0;
  uint64_t plans_ignored = 0;

  uint64_t prefix_lookups = 0;
  uint64_t prefix_hits = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_published = 0;
  uint64_t prefix_evictions = 0;
  uint32_t kv_pages_cached_idle = 0;  // Of the free ones: they still hold a prefix.
  uint32_t kv_pages_cached_held = 0;

  uint32_t attempts_open = 0;
  uint32_t kv_pages_total = 0;
  uint32_t kv_pages_free = 0;
  uint64_t incarnation = 0;
  bool has_shard = false;
  bool draining = false;
};

// The full list of names.
std::vector<MetricFamily> NodeMetrics(const NodeFigures& figures);

}  // namespace shardline
