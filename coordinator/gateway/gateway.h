#pragma once

// The HTTP API in front of the coordinator: every request from access to route, and the way of the
// events of its calls back to it.
//
// Calls the coordinator through the interfaces of the gRPC shells and is a ClientSink for the calls
// it numbers, from kFirstHttpCall. Decides nothing about sessions.
//
// Threads: requests come on the server's, events on the coordinator's loop. A body that takes long
// to read (a prompt of megabytes) is read on a thread of its own, so that no stream waits for it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/gateway/gateway_figures.h"
#include "coordinator/gateway/gateway_models.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/transport/client_sink.h"
#include "coordinator/transport/inference_service.h"

namespace shardline {

// Calls of the gRPC service are numbered from 1, those of nobody from 2^63.
inline constexpr uint64_t kFirstHttpCall = uint64_t{1} << 62;

struct GatewayOptions {
  int choices_max = 8;                               // `n`, and prompts x n.
  absl::Duration ping_interval = absl::Seconds(10);  // A comment when a stream has been so silent.
  size_t events_queued_max = 4096;                   // Of one request.
  size_t long_body_bytes = 64 * 1024;                // Read on a thread of its own.
};

class Gateway final : public HttpHandler, public ClientSink {
 public:
  // All outlive the gateway, which outlives the server it handles.
  struct World {
    const Clock* clock = nullptr;
    ClientEvents* clients = nullptr;
    AdminEvents* admin = nullptr;
    const GatewayModels* models = nullptr;
  };

  Gateway(const World& world, const GatewayOptions& options);
  ~Gateway() override;

  // HttpHandler.
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse Refusal(int status, std::string_view reason) override;

  // ClientSink.
  [[nodiscard]] bool Send(RequestId call, v1::GenerateEvent event) override;
  void End(RequestId call, const absl::Status& status) override;
  void EndNow(RequestId call, const absl::Status& status) override;

  // From here on requests for text are refused as `draining`; those under way go on.
  void Drain();
  GatewayFigures figures() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shardline
