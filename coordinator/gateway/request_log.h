#pragma once

// Where the time of the last requests went: what the page draws as a waterfall. Figures only,
// never a text. Any thread.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "shardline/v1/head.pb.h"

namespace shardline {

// One request that has ended; of several choices, the first one's session.
struct RequestRecord {
  std::string request_id;  // x-request-id.
  std::string id;          // Of the answer: "chatcmpl-…"; empty: it came to none.
  std::string endpoint;    // "/v1/chat/completions".
  std::string model;
  std::string key_name;  // Empty: without a key.
  SessionId session;
  Epoch epoch;
  int status = 0;      // HTTP.
  std::string reason;  // A finish_reason, or the code of the error that ended it.
  int64_t at_unix_ms = 0;
  absl::Duration queued;  // Until a route took it.
  absl::Duration ttft;    // From arrival; zero: no token came.
  absl::Duration total;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t tokens = 0;
  v1::RunTimings timings;  // The last attempt's.

  struct Stage {
    NodeId node;
    LayerRange layers;
    absl::Duration compute;
  };
  std::vector<Stage> stages;  // Of the last route.

  struct Restart {
    absl::Duration at;  // From arrival.
    Epoch epoch;        // Of the attempt that took over.
    std::string reason;
  };
  std::vector<Restart> restarts;
};

class RequestLog {
 public:
  explicit RequestLog(size_t records_max = 256) : records_max_(records_max) {}

  void Add(RequestRecord record) ABSL_LOCKS_EXCLUDED(mu_);

  // By `request_id` or `id`; the newest.
  std::optional<RequestRecord> Find(std::string_view id) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<RequestRecord> List() const ABSL_LOCKS_EXCLUDED(mu_);  // Newest first.

 private:
  const size_t records_max_;

  mutable absl::Mutex mu_;
  std::deque<RequestRecord> records_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
