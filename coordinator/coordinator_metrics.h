#pragma once

// The coordinator's figures under the names that operators watch.

#include <cstdint>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/metrics/metric.h"

namespace shardline {

// One moment of the coordinator, filled on its loop.
struct CoordinatorFigures {
  // Sessions since the start, by how they ended.
  uint64_t sessions_started = 0;
  uint64_t sessions_completed = 0;
  uint64_t sessions_failed = 0;
  uint64_t sessions_cancelled = 0;
  uint64_t sessions_expired = 0;
  uint64_t sessions_refused = 0;
  uint64_t sessions_attached = 0;  // Joined one that ran.
  uint64_t sessions_replayed = 0;  // Answered from the ledger.
  int sessions_running = 0;

  // Attempts since the start, by their records.
  uint64_t attempts_granted = 0;
  uint64_t attempts_completed = 0;
  uint64_t attempts_failed = 0;
  uint64_t attempts_cancelled = 0;
  uint64_t attempts_expired = 0;
  uint64_t attempts_fenced = 0;
  uint64_t attempts_unverified = 0;

  KindCounts failures = {};  // Of what clients were told, by kind.
  KindCounts restarts = {};  // By what ended the attempt before.
  Histogram failover_seconds{SlowBounds()};

  uint64_t fences_answered = 0;
  uint64_t fences_failed = 0;
  uint64_t fences_resent = 0;
  uint64_t tokens_delivered = 0;
  uint64_t tokens_billed = 0;
  uint64_t tokens_dropped = 0;
  uint64_t pages_released = 0;
  uint64_t record_retries = 0;
  uint64_t restarts_paced = 0;  // Waited for the cluster's restart budget.

  // The queue, and what heads said of the runs that came to their end.
  int requests_waiting = 0;
  int queue_capacity = 0;
  uint64_t refused_queue_full = 0;
  uint64_t refused_too_large = 0;
  uint64_t turns = 0;          // Waiters that tried,
  uint64_t turns_refused = 0;  // and found no room.
  uint64_t passes = 0;
  uint64_t attempts_without_room = 0;
  Histogram queue_seconds{SlowBounds()};  // Of those let in.
  Histogram head_queue_seconds{SlowBounds()};
  Histogram gap_rounds{SlowBounds()};

  struct Node {
    std::string id;
    bool up = false;
    std::string duty;             // As NodeDutyName.
    double last_beat_unix_s = 0;  // For people; decides nothing.
  };
  std::vector<Node> nodes;

  struct Replans {
    std::string model;
    std::string reason;
    uint64_t count = 0;
  };
  std::vector<Replans> replans;

  uint64_t term = 0;
  bool ready = false;
  bool draining = false;
};

// The full list of names.
std::vector<MetricFamily> CoordinatorMetrics(const CoordinatorFigures& figures);

}  // namespace shardline
