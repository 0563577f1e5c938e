#pragma once

// Who may ask what over HTTP: request ids, CORS, keys. Pure: a request in, a verdict out.
//
// Four kinds of paths: public ones need no key (is it alive? the page); inference needs a key once
// there are any; admin needs an admin key once there are any; some take either. An admin key does
// not serve inference: what operators carry about is not for applications.
//
// Without keys a browser is the one danger on a loopback address: any page it shows can send
// requests there. So a request whose Host is not a loopback name is refused (the page had its own
// name point here), and one whose Origin is another site's.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/gateway/api_keys.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

enum class PathClass {
  kPublic,     // "/", "/assets/…", "/livez", "/readyz", "/health".
  kInference,  // What is nothing else.
  kAdmin,      // "/admin/…", "/slots".
  kEither,     // "/status.txt", "/version".
};
PathClass PathClassOf(std::string_view path);

// False for a request that a page of another site has made; what is no browser sends no Origin.
bool IsOwnOrigin(const HttpRequest& request);

struct AccessPolicy {
  bool loopback = true;  // Only this machine can reach the listener.
  // Sites whose pages may call, "https://chat.example.org"; "*" for all. The listener's own origin
  // and localhost may always. None of them reaches /admin, which is for its own page alone.
  std::vector<std::string> cors_origins;
};

struct AccessVerdict {
  std::string request_id;
  std::string key_name;  // Whose key it was; empty: none was needed.
  HttpHeaders headers;   // For every answer to this request: x-request-id, CORS, Vary.
  // A preflight's answer or a refusal, without `headers`; nothing: go on.
  std::optional<HttpResponse> answer;
};

// `fresh_id` is the request's id if it brings none that is fit: 1 to 128 of letters, digits, '.',
// '_', ':' and '-'.
AccessVerdict Decide(const AccessPolicy& policy, const ApiKeys& keys, const HttpRequest& request,
                     std::string fresh_id);

// 24 characters, never the same twice: "req-…".
std::string MakeRequestId();

// True for "127.0.0.1:8080", "[::1]:0", "localhost:8080".
bool IsLoopbackListener(std::string_view listen);

// One line that names the flag: elsewhere than on loopback the listener needs keys, or
// --http-insecure.
absl::Status CheckExposure(std::string_view listen, bool has_keys, bool insecure);

}  // namespace shardline
