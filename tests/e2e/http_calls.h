#pragma once

// Calls of the HTTP API, as a test makes them: one connection each, every byte of it seen.

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/raw_http.h"

namespace shardline::testing {

using HttpJson = nlohmann::ordered_json;
using HttpFields = std::vector<std::pair<std::string, std::string>>;

// The bytes of a request with a Content-Length.
std::string RequestBytes(std::string_view method, std::string_view path, const std::string& body,
                         const HttpFields& headers = {});

RawAnswer Post(int port, std::string_view path, const HttpJson& body,
               const HttpFields& headers = {});
RawAnswer Get(int port, std::string_view path, const HttpFields& headers = {});
// The body as JSON; null when it is none.
HttpJson JsonOf(const RawAnswer& answer);

// A stream of events, read to its end or until `on_event` says that it is enough.
struct StreamAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::vector<HttpJson> events;  // Of "data:" lines, less [DONE].
  std::vector<std::string> ids;  // Of those events that have one.
  int comments = 0;
  std::string body;  // Of an answer that is no stream.
  std::string text;  // Deltas, or texts, of the first choice.
  std::string finish_reason;
  std::string error_code;  // Of an error event.
  bool done = false;       // [DONE] came.
  bool is_whole = false;   // The last chunk came.
};
using OnStreamEvent = std::function<bool(const StreamAnswer& so_far)>;
StreamAnswer ReadStream(RawHttp& connection, const OnStreamEvent& on_event = {});
StreamAnswer Stream(int port, std::string_view path, HttpJson body, const HttpFields& headers = {},
                    const OnStreamEvent& on_event = {});

}  // namespace shardline::testing
