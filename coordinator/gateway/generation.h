#pragma once

// One HTTP request whose answer is generated: its calls to the coordinator, one a choice, and what
// the client is told of them.
//
// Until the first token (or progress that was asked for, or a comment that keeps the connection)
// nothing is sent, so a failure before it is a plain error with a status of its own. After it a
// failure is an error event and an abnormal end. One choice that fails ends all. A client that is
// gone, or reads too slowly, cancels every call at once.
//
// Events come from the coordinator's loop, hang-ups from the server, ticks from a timer: a strand
// of its own puts them in order, and no other request waits for it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/strand.h"
#include "coordinator/gateway/http_message.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

class Generation;

// What a generation needs of the gateway. Any thread.
class GenerationHost {
 public:
  virtual ~GenerationHost() = default;
  // The client of this call is gone.
  virtual void Cancel(RequestId call) = 0;
  // Once, last: nothing more is said to the client.
  virtual void OnOver(const std::shared_ptr<Generation>& generation) = 0;
};

}  // namespace shardline
