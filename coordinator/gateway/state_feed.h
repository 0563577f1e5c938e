#pragma once

// The cluster's state for those who look on: one question to the coordinator's loop at a time,
// however many ask here, and made into JSON on a thread of its own.
//
// Readers of the event stream are bounded in number, and one that does not keep up is dropped: it
// comes back with Last-Event-ID and has lost nothing.

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/gateway/cluster_json.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

inline constexpr size_t kEventReadersMax = 64;
inline constexpr absl::Duration kSampleInterval = absl::Seconds(1);  // When nobody looks on.
inline constexpr absl::Duration kRateWindow = absl::Seconds(5);      // Of tokens_per_s.

class StateFeed {
 public:
  // All outlive this; `events` may still answer after Stop.
  StateFeed(AdminEvents* events, const EventLog* log, const Clock* clock);
  ~StateFeed();  // As Stop.

  // Any thread. `use` is called once with a moment that is at most `age` older than this call, or
  // with why there is none: on this thread, or on the feed's. An age above zero is for what
  // everybody may ask: it costs the loop no more than kStateInterval allows.
  using MomentReply = absl::AnyInvocable<void(const absl::StatusOr<ClusterMoment>&)>;
  void WithMoment(absl::Duration age, MomentReply use);

  // Begins the stream on `exchange`, after the timeline event `after`; ResourceExhausted, and the
  // exchange is untouched, when there are enough readers.
  absl::Status Watch(std::shared_ptr<HttpExchange> exchange, uint64_t after);

  // For how long the question under way has been waiting for the loop.
  absl::Duration LoopSilence() const;

  // Finishes all streams, answers who waits, and joins the thread.
  void Stop();

 private:
  struct Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace shardline
