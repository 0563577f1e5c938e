#pragma once

// The coordinator's door to the head: RunAttempt, tokens streamed back.
//
// Parses, posts, writes. A stream that falls behind by more than its queue ends with kOverloaded;
// the end of a stream, from whichever side, is reported once.

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "node/rounds/run_attempt.h"
#include "node/transport/run_gate.h"
#include "node/transport/stage_conversion.h"

namespace shardline {

// One RunAttempt call. Outlives it: what comes too late is dropped. Any thread.
class RunStream {
 public:
  virtual ~RunStream() = default;

  virtual void SendToken(const TokenOut& token) = 0;
  virtual void SendProgress(const ProgressOut& progress) = 0;

  // Writes the end, or the failure as the call's status. Only the first one counts.
  virtual void End(const AttemptEnd& end) = 0;
  virtual void Fail(const absl::Status& status) = 0;
};

// Called on gRPC threads; must not block.
struct HeadEvents {
  std::function<void(RunRequest, std::shared_ptr<RunStream>)> on_run;
  // The call is over; if the caller hung up, the attempt may still be running.
  std::function<void(AttemptKey, std::shared_ptr<RunStream>)> on_run_closed;
  // Counts every call from before it is looked at until it is over; shut, calls are refused with
  // kOverloaded. Not owned, outlives the service; may be null.
  RunGate* gate = nullptr;
};

std::unique_ptr<grpc::Service> MakeHeadService(HeadEvents events);

}  // namespace shardline
