#pragma once

// The bytes that a client sent, as a request. Pure: no socket, no clock; Beast's grammar and what
// it lets pass that a server must not.
//
// Strict, because every leniency is a way to hide a second request from whoever stands in front:
// lines end with CRLF, no folded lines, one Host, one Content-Length or one "chunked", no NUL.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "coordinator/gateway/http_message.h"

namespace shardline {

struct HttpParserLimits {
  size_t header_bytes_max = 8 * 1024;  // Request line and fields; a chunk's line and the trailers.
  size_t body_bytes_max = 32 << 20;
};

// One request. Memory: what was read of it, never what it announces.
class HttpParser {
 public:
  enum class State {
    kBlank,    // Nothing but empty lines so far.
    kHead,     // In the request line or the fields.
    kBody,     // The head is whole and within the limits.
    kDone,     // Whole: see TakeRequest.
    kRefused,  // See refusal; the bytes that follow mean nothing.
  };

  struct Refusal {
    int status = 400;    // 400, 413, 431 or 505.
    std::string reason;  // One line for people.
  };

  explicit HttpParser(const HttpParserLimits& limits);
  ~HttpParser();
  HttpParser(HttpParser&&) noexcept;
  HttpParser& operator=(HttpParser&&) noexcept;

  // Takes what it can use from the front of `input`. What stays there is the next request's once
  // the state is kDone, and else the beginning of something unfinished: append to it.
  State Feed(std::string& input);

  // From kBody on.
  bool expects_continue() const;  // The client waits for "100 Continue" before it sends the body.
  bool is_http11() const;
  bool keep_alive() const;  // What the client wishes.

  // REQUIRES: kRefused, kDone.
  const Refusal& refusal() const;
  HttpRequest TakeRequest();  // Without peer and is_tls.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardline
