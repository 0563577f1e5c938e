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
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/gateway/access.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/gateway_figures.h"
#include "coordinator/gateway/gateway_models.h"
#include "coordinator/gateway/generation.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/gateway/request_log.h"
#include "coordinator/gateway/routes.h"
#include "coordinator/task_thread.h"
#include "coordinator/transport/client_sink.h"
#include "coordinator/transport/inference_service.h"
#include "coordinator/wake_timer.h"

namespace shardline {

// Calls of the gRPC service are numbered from 1, those of nobody from 2^63.
inline constexpr uint64_t kFirstHttpCall = uint64_t{1} << 62;

struct GatewayOptions {
  AccessPolicy access;
  ApiLimits limits;
  absl::Duration ping_interval = absl::Seconds(10);  // Of silent streams; zero: no comments.
  absl::Duration return_grace = absl::Seconds(5);    // Of clients with an idempotency key.
  size_t events_queued_max = 4096;                   // Of one request.
  size_t long_body_bytes = 64 * 1024;                // Read on a thread of its own.
};

class Gateway final : public HttpHandler, public ClientSink, private GenerationHost {
 public:
  // All outlive the gateway, which outlives the server it handles.
  struct World {
    const Clock* clock = nullptr;
    ClientEvents* clients = nullptr;
    AdminEvents* admin = nullptr;
    const GatewayModels* models = nullptr;
    RequestLog* requests = nullptr;
    ApiKeyFile* keys = nullptr;  // Null: there are none.
    // Takes the requests that are not about text (admin, health, page), and says so; may be empty.
    std::function<bool(const std::shared_ptr<HttpExchange>&)> other_paths;
  };

  Gateway(const World& world, const GatewayOptions& options);
  ~Gateway() override;

  // HttpHandler.
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse Refusal(int status, std::string_view reason) override;

  // ClientSink.
  [[nodiscard]] bool Send(RequestId call, v1::GenerateEvent event) override;
  void End(RequestId call, const absl::Status& status) override;
  void EndNow(RequestId call, const absl::Status& status) override { End(call, status); }

  // From here on requests for text are refused as `draining`; those under way go on.
  void Drain() { draining_ = true; }
  // No wake-ups and no long bodies any more. After the server's shutdown, before the coordinator's
  // loop is gone; once is enough.
  void Stop();

  GatewayFigures figures() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A request that has passed: what was decided, and where it goes.
  struct Passed {
    std::shared_ptr<HttpExchange> exchange;
    RouteMatch route;
    std::string request_id;
    std::string key_name;
    Instant arrived;
  };
  struct Call {
    std::shared_ptr<Generation> generation;
    size_t choice = 0;
  };

  // GenerationHost.
  void Cancel(RequestId call) override;
  void Explain(const std::string& model, const absl::Status& failure,
               absl::AnyInvocable<void(const ApiError&)> then) override;
  void OnOver(Generation& generation, GenerationEnd end) override;

  void Dispatch(Passed passed);
  void Generate(ApiKind kind, const Passed& passed);
  void StartGeneration(ApiCall call, const GatewayModel& model, const Passed& passed);
  void AnswerText(const Passed& passed);
  void AnswerModels(const Passed& passed);
  // Answers why there is no such model in service.
  void RefuseModel(const std::string& name, const Passed& passed);
  void NoteIgnored(const ApiCall& call) ABSL_LOCKS_EXCLUDED(mu_);
  void CountRequest(const std::string& route, const std::string& method, int status)
      ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<RequestId> NumberCalls(size_t count) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Generation> Find(RequestId call, size_t* choice) ABSL_LOCKS_EXCLUDED(mu_);
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);
  void WakeForTick() ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  const World world_;
  const GatewayOptions options_;

  std::atomic<bool> draining_ = false;

  mutable absl::Mutex mu_;
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = kFirstHttpCall;
  absl::flat_hash_map<RequestId, Call> calls_ ABSL_GUARDED_BY(mu_);
  bool tick_asked_ ABSL_GUARDED_BY(mu_) = false;
  GatewayFigures figures_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> ignored_ ABSL_GUARDED_BY(mu_);  // Fields that were told of once.

  WakeTimer timer_;
  TaskThread reader_;  // Last: its tasks use the others.
};

}  // namespace shardline
