#pragma once

// What the HTTP listener says of the cluster: the admin API, health, /status.txt, /version, and
// the page itself. A shell over AdminEvents, as the Admin service is.
//
// Who may ask was decided before (access.h). Answers carry no x-request-id and no CORS headers:
// whoever calls adds them (header_exchange.h).

#include <memory>

#include "base/clock.h"
#include "coordinator/admin/admin_service.h"
#include "coordinator/gateway/event_log.h"
#include "coordinator/gateway/http_message.h"
#include "coordinator/gateway/request_log.h"

namespace shardline {

class AdminHttp {
 public:
  // All outlive this.
  struct World {
    AdminEvents* events;
    const EventLog* log;
    const RequestLog* requests;
    const Clock* clock;
  };

  explicit AdminHttp(const World& world);
  ~AdminHttp();  // As Stop.

  // True: the path is one of ours, and the exchange will be answered. Any thread; does not block.
  bool Handle(const std::shared_ptr<HttpExchange>& exchange);

  // Ends the streams of /admin/v1/events, which never end by themselves, and answers what is still
  // asked with 503. To be called before the HTTP server is shut down, and before what stands behind
  // `events` goes. Once is enough.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shardline
