#pragma once

// An HTTP/1.1 server: keep-alive, pipelining, chunked bodies, Expect: 100-continue, TLS, limits.
//
// A shell that knows nothing of what is asked. Connections share a few threads; each has a bounded
// buffer, so a client that does not read costs that much memory and stops nobody. What breaks the
// protocol or a limit is answered here, with an error of the shape that `errors` makes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // On a thread of the server; must not block for long.
  virtual void OnRequest(std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to what the server itself refuses: 400, 408, 413, 431, 503, 505.
  virtual HttpResponse Refusal(int status, std::string_view reason) = 0;
};

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0 takes a free one.
  int threads = 2;
  int connections_max = 4096;                      // Beyond: 503 and closed.
  size_t header_bytes_max = 8 * 1024;              // Beyond: 431.
  size_t body_bytes_max = 32 << 20;                // Beyond: 413.
  absl::Duration header_time = absl::Seconds(10);  // From the first byte; beyond: 408 and closed.
  absl::Duration body_time = absl::Seconds(60);
  absl::Duration idle_time = absl::Seconds(75);  // Between requests.
  absl::Duration write_time =
      absl::Seconds(30);                 // A client that takes nothing for so long is gone.
  size_t stream_bytes_max = 256 * 1024;  // Unsent bytes of one stream.
  // Both or neither; PEM files. With them only TLS 1.2 and later is spoken.
  std::string tls_certificate;
  std::string tls_key;
};

// Monotonic but for the first two.
struct HttpFigures {
  uint64_t connections = 0;
  uint64_t streams = 0;  // Begun and not ended.
  uint64_t requests = 0;
  uint64_t refused = 0;  // By the server itself.
  uint64_t gone = 0;     // Clients that hung up before their answer was complete.
};

class HttpServer {
 public:
  // `handler` outlives the server. Errors are one line that names the address or the file.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler* handler);
  ~HttpServer();  // As Shutdown(0).

  int port() const;
  HttpFigures figures() const;

  // Takes no new connections and closes idle ones; answers say Connection: close from here on.
  void StopAccepting();
  // StopAccepting, waits up to `limit` for answers under way, then hangs up and joins the threads.
  void Shutdown(absl::Duration limit);

 private:
  struct Impl;  // Beast and its threads: http_server.cc.
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace shardline
