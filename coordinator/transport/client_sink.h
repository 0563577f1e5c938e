#pragma once

// Where the events of a client's call go, whatever it speaks.

#include "absl/status/status.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

// Any thread; no call blocks.
class ClientSink {
 public:
  virtual ~ClientSink() = default;

  // Queues `event`; false when the client is gone or does not keep up.
  [[nodiscard]] virtual bool Send(RequestId request_id, v1::GenerateEvent event) = 0;

  // Ends the call after what is queued; EndNow drops the queue, for a client that does not keep up.
  // Only the first end counts.
  virtual void End(RequestId request_id, const absl::Status& status) = 0;
  virtual void EndNow(RequestId request_id, const absl::Status& status) = 0;
};

}  // namespace shardline
