#include "coordinator/gateway/access.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "coordinator/gateway/api_error.h"

namespace shardline {
namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kSecretBytesMax = 256;
constexpr std::string_view kMethods = "GET, HEAD, POST, DELETE, OPTIONS";
constexpr std::string_view kRequestHeaders =
    "Authorization, Content-Type, X-Api-Key, X-Request-Id, Last-Event-ID, Idempotency-Key, "
    "X-Shardline-Resume";
constexpr std::string_view kExposedHeaders =
    "x-request-id, retry-after, x-shardline-plan, x-shardline-nodes, x-shardline-session";
constexpr std::string_view kPreflightSeconds = "600";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(View(text)); }

bool IsBelow(std::string_view path, std::string_view room) {
  return path == room || (path.starts_with(room) && path.substr(room.size()).starts_with('/'));
}

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == ':' || c == '-';
         });
}

// "localhost" of "localhost:8080", "[::1]" of "[::1]:8080".
std::string_view HostOf(std::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  return has_port ? authority.substr(0, colon) : authority;
}

// "example.org:8080" of "https://example.org:8080"; empty for "null" and what else is no origin.
std::string_view AuthorityOf(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return {};
}

// Four numbers: nobody's name, and so nobody's to point elsewhere.
bool IsIpv4(std::string_view host) {
  int dots = 0;
  for (const unsigned char c : host) {
    if (c != '.' && !absl::ascii_isdigit(c)) return false;
    dots += c == '.' ? 1 : 0;
  }
  return dots == 3;
}

bool IsLoopbackHost(std::string_view host) {
  const std::string name = Lower(host);
  return name == "localhost" || absl::EndsWith(name, ".localhost") || name == "[::1]" ||
         (absl::StartsWith(name, "127.") && IsIpv4(name));
}

// What no page of the internet can have been loaded from: a number, or a name without a dot.
bool IsPlainHost(std::string_view host) {
  return IsLoopbackHost(host) || host.starts_with('[') || IsIpv4(host) ||
         (!host.empty() && host.find('.') == std::string_view::npos);
}

bool MayCall(const AccessPolicy& policy, const HttpRequest& request) {
  const std::string_view origin = request.Header("origin");
  if (IsOwnOrigin(request)) return true;
  if (IsLoopbackHost(HostOf(AuthorityOf(origin)))) return true;
  return std::any_of(policy.cors_origins.begin(), policy.cors_origins.end(),
                     [&](const std::string& allowed) {
                       return allowed == "*" || Lower(allowed) == Lower(origin);
                     });
}

// The browser's list of what its page wants to send; only the usual and the openai clients' own.
std::string AllowedHeaders(const HttpRequest& request) {
  std::string allowed(kRequestHeaders);
  const std::string asked = Lower(request.Header("access-control-request-headers"));
  for (size_t at = 0; at < asked.size();) {
    const size_t end = std::min(asked.find(',', at), asked.size());
    const absl::string_view name =
        absl::StripAsciiWhitespace(absl::string_view(asked).substr(at, end - at));
    const bool is_token = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '-';
    });
    if (is_token && absl::StartsWith(name, "x-stainless-")) absl::StrAppend(&allowed, ", ", name);
    at = end + 1;
  }
  return allowed;
}

HttpResponse Unauthenticated(std::string message) {
  return ErrorResponse(InvalidApiKey(std::move(message)));
}

HttpResponse Forbidden(std::string message) {
  return ErrorResponse(PermissionDenied(std::move(message)));
}

std::string_view SecretOf(const HttpRequest& request) {
  const std::string_view authorization = request.Header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size() &&
      Lower(authorization.substr(0, kBearer.size())) == kBearer) {
    return authorization.substr(kBearer.size());
  }
  return request.Header("x-api-key");
}

// Without keys: what a browser could be made to send is refused.
std::optional<HttpResponse> RefuseBrowser(const AccessPolicy& policy, const HttpRequest& request,
                                          PathClass path_class) {
  const std::string_view host = HostOf(request.Header("host"));
  const bool fit =
      policy.loopback ? IsLoopbackHost(host) : path_class != PathClass::kAdmin || IsPlainHost(host);
  if (!fit) {
    return Forbidden(
        "without API keys only requests to a loopback name or address are served; start the "
        "coordinator with --api-keys to serve other names");
  }
  const bool is_admin = path_class == PathClass::kAdmin;
  if (is_admin ? IsOwnOrigin(request) : MayCall(policy, request)) return std::nullopt;
  return Forbidden("pages of other sites may not call here; --cors-origin allows one");
}

std::optional<HttpResponse> CheckKey(const ApiKeys& keys, const HttpRequest& request,
                                     PathClass path_class, std::string& key_name) {
  const std::string_view secret = SecretOf(request);
  if (secret.empty()) {
    return Unauthenticated("no API key: send it as Authorization: Bearer KEY, or as x-api-key");
  }
  const ApiKey* key = secret.size() <= kSecretBytesMax ? keys.Find(secret) : nullptr;
  if (key == nullptr) return Unauthenticated("the API key is not one of this server's");
  const bool fit = path_class == PathClass::kEither ||
                   (path_class == PathClass::kAdmin) == (key->kind == KeyKind::kAdmin);
  key_name = key->name;
  if (fit) return std::nullopt;
  return Forbidden(path_class == PathClass::kAdmin
                       ? "this needs an admin key; `shardctl key new NAME --admin` makes one"
                       : "an admin key does not serve inference; use an inference key");
}

// Whether the page that asks may read the answer; /admin is for its own page alone, which needs no
// leave.
bool AddCors(const AccessPolicy& policy, const HttpRequest& request, PathClass path_class,
             HttpHeaders& headers) {
  headers.emplace_back("vary", "Origin");
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || path_class == PathClass::kAdmin) return false;
  if (!MayCall(policy, request)) return false;
  headers.emplace_back("access-control-allow-origin", origin);
  headers.emplace_back("access-control-expose-headers", kExposedHeaders);
  return true;
}

HttpResponse Preflight(const HttpRequest& request, bool allowed) {
  HttpResponse response{.status = 204, .headers = {}, .body = {}};
  if (!allowed) return response;
  response.headers.emplace_back("access-control-allow-methods", kMethods);
  response.headers.emplace_back("access-control-allow-headers", AllowedHeaders(request));
  response.headers.emplace_back("access-control-max-age", kPreflightSeconds);
  // Chrome asks so before a page of the internet may reach an address at home.
  if (request.Header("access-control-request-private-network") == "true") {
    response.headers.emplace_back("access-control-allow-private-network", "true");
  }
  return response;
}

}  // namespace

PathClass PathClassOf(std::string_view path) {
  for (const std::string_view open : {"/", "/index.html", "/livez", "/readyz", "/health"}) {
    if (path == open) return PathClass::kPublic;
  }
  if (IsBelow(path, "/assets")) return PathClass::kPublic;
  if (IsBelow(path, "/admin") || IsBelow(path, "/slots")) return PathClass::kAdmin;
  if (path == "/status.txt" || path == "/version") return PathClass::kEither;
  return PathClass::kInference;
}

bool IsOwnOrigin(const HttpRequest& request) {
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return true;
  const std::string_view authority = AuthorityOf(origin);
  return !authority.empty() && Lower(authority) == Lower(request.Header("host"));
}

AccessVerdict Decide(const AccessPolicy& policy, const ApiKeys& keys, const HttpRequest& request,
                     std::string fresh_id) {
  AccessVerdict verdict;
  const std::string_view id = request.Header("x-request-id");
  verdict.request_id = IsRequestId(id) ? std::string(id) : std::move(fresh_id);
  verdict.headers.emplace_back("x-request-id", verdict.request_id);
  const PathClass path_class = PathClassOf(request.path);
  const bool cors = AddCors(policy, request, path_class, verdict.headers);
  if (request.method == "OPTIONS") {
    verdict.answer = Preflight(request, cors);
  } else if (path_class != PathClass::kPublic) {
    verdict.answer = keys.empty() ? RefuseBrowser(policy, request, path_class)
                                  : CheckKey(keys, request, path_class, verdict.key_name);
  }
  return verdict;
}

std::string MakeRequestId() {
  std::array<char, 10> bytes = {};
  // The generator is seeded by the system at start and does not fail after that.
  SL_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                      static_cast<int>(bytes.size())) == 1);
  return absl::StrCat("req-",
                      absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())));
}

bool IsLoopbackListener(std::string_view listen) { return IsLoopbackHost(HostOf(listen)); }

absl::Status CheckExposure(std::string_view listen, bool has_keys, bool insecure) {
  if (has_keys || insecure || IsLoopbackListener(listen)) return absl::OkStatus();
  return MakeFailure(
      FailureKind::kInvalidRequest,
      absl::StrCat("--http: ", View(listen),
                   " can be reached from other machines: give --api-keys FILE (`shardctl key new` "
                   "makes one), or --http-insecure to serve everybody"));
}

}  // namespace shardline
