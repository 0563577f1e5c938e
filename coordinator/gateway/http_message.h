#pragma once

// HTTP as the rest of the gateway sees it: a request that is whole, and an answer that is either
// whole or a stream of pieces. Knows no library.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace shardline {

// Names are in lower case and come in the order in which they were sent.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // As sent: "GET".
  std::string path;    // Percent-decoded, without query: "/v1/models/a b".
  std::string query;   // As sent, without '?'.
  HttpHeaders headers;
  std::string body;
  std::string peer;  // Address of the other end, without port.
  bool is_tls = false;

  // The first of that (lower-case) name, or empty.
  std::string_view Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

// Content-Length, Date, Connection and Transfer-Encoding are the server's own.
struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;  // Dropped for HEAD and 204; its length is told all the same for HEAD.
};

// One request and its answer. Held by shared_ptr by whoever answers; any thread may call, and no
// call blocks. Exactly one of Answer and Begin, once; later ones are ignored. Letting the last
// reference go without an answer closes the connection.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  virtual void Answer(HttpResponse response) = 0;

  // Sends the head of a stream; `response.body` is its first piece and may be empty. Then pieces
  // follow, each a chunk of its own that is flushed by itself.
  virtual void Begin(HttpResponse response) = 0;
  // False: the client is gone, or it reads so slowly that its buffer is full; then end it.
  [[nodiscard]] virtual bool Write(std::string piece) = 0;
  // The end of a stream that is whole: the connection may carry more requests.
  virtual void Finish() = 0;
  // The end of one that is not: what was written is flushed, and the connection closes without the
  // last chunk, so that no client takes it for whole.
  virtual void Abort() = 0;

  // Calls `gone` once if the client hangs up before the answer is complete; at once if it has.
  // Never after Answer, Finish or Abort. A server that shuts down at its deadline hangs up, too.
  virtual void OnGone(absl::AnyInvocable<void()> gone) = 0;
};

}  // namespace shardline
