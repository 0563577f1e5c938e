#pragma once

// What has happened in the cluster, for people: the page's timeline. The last thousand.
//
// Ids rise over one coordinator's life and from one life to the next (term * 2^32 + n), so that a
// reader who comes back after either says where it stopped. Decides nothing. Any thread.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/id.h"

namespace shardline {

inline constexpr size_t kEventTextBytesMax = 500;

enum class EventLevel { kInfo, kWarning, kError };

struct ClusterEvent {
  uint64_t id = 0;  // Given by the log, as the time is.
  int64_t at_unix_ms = 0;
  EventLevel level = EventLevel::kInfo;
  // "coordinator_started", "ledger_out_of_date", "node_joined", "node_lost", "node_removed",
  // "node_cordoned", "node_uncordoned", "node_draining", "node_drained", "sessions_moved",
  // "link_silent", "plan_made", "plan_refused", "model_loading", "model_probing", "model_ready",
  // "model_degraded", "model_failed", "model_unloaded", "session_restarted".
  std::string kind;
  std::string text;  // One line; never a prompt or an answer.
  std::string node;  // Empty: none, as the two below.
  std::string model;
  SessionId session;
};

class EventLog {
 public:
  explicit EventLog(Term term, size_t events_max = 1000);

  void Add(ClusterEvent event) ABSL_LOCKS_EXCLUDED(mu_);

  // What came after `id`, oldest first, at most `limit`. An id of another life, or 0: all.
  std::vector<ClusterEvent> After(uint64_t id, size_t limit) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t newest() const ABSL_LOCKS_EXCLUDED(mu_);  // 0: none yet.

 private:
  const uint64_t first_id_;
  const size_t events_max_;

  mutable absl::Mutex mu_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_);
  std::deque<ClusterEvent> events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
