#pragma once

// Inference.Generate and Inference.Tokenize: what clients call.
//
// A shell. Every stream has a bounded queue of its own, so a client that does not read costs that
// much memory and stops nobody: the sender is told "no" and ends the session.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/metrics/metric.h"
#include "coordinator/sessions/session_words.h"
#include "coordinator/transport/client_sink.h"
#include "shardline/v1/inference.pb.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shardline {

// Where requests go. Called on gRPC threads, must not block for long.
class ClientEvents {
 public:
  virtual ~ClientEvents() = default;
  virtual void OnGenerate(RequestId request_id, v1::GenerateRequest request) = 0;
  // The client hung up or its own deadline passed. May come after the stream was ended.
  virtual void OnClientGone(RequestId request_id) = 0;
  virtual absl::StatusOr<v1::TokenizeReply> OnTokenize(const v1::TokenizeRequest& request) = 0;
};

class InferenceService final : public ClientSink {
 public:
  // `events` outlives the server that serves this. At most `messages_queued_max` events wait for
  // one client.
  InferenceService(ClientEvents* events, size_t messages_queued_max);
  ~InferenceService() override;

  // ClientSink.
  [[nodiscard]] bool Send(RequestId request_id, v1::GenerateEvent event) override;
  void End(RequestId request_id, const absl::Status& status) override;
  void EndNow(RequestId request_id, const absl::Status& status) override;

  // What clients were told, by kind. Any thread.
  KindCounts failures() const;

  grpc::Service* service();

 private:
  class Service;
  class Reactor;
  struct Streams;

  void Count(const absl::Status& status);

  const std::shared_ptr<Streams> streams_;
  const std::unique_ptr<Service> service_;
  std::array<std::atomic<uint64_t>, kFailureKindCount> failures_ = {};
};

}  // namespace shardline
