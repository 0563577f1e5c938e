#pragma once

// What a client of the HTTP API is told when something is wrong: one envelope for all of it.
//
// Source: the OpenAI API's error object; all four keys are always there. See ErrorJson.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

struct ApiError {
  int status = 500;                           // HTTP.
  std::string type = "server_error";          // "invalid_request_error", …
  std::optional<std::string> code;            // "model_not_found", …
  std::optional<std::string> param;           // The field, as "messages[2].content".
  std::string message;                        // For people; one line.
  std::optional<absl::Duration> retry_after;  // Told in whole seconds, 1 to 60.
  bool never_retry = false;                   // A 5xx that would come again: x-should-retry: false.
  std::optional<uint64_t> prompt_tokens;      // With context_length_exceeded: both numbers.
  std::optional<uint64_t> context_tokens;
  std::string loading_json;  // With model_loading: the "loading" object, or empty.
};

// A value or why there is none.
template <typename T>
class ApiResult {
 public:
  ApiResult(T value) : value_(std::move(value)) {}         // NOLINT: as StatusOr.
  ApiResult(ApiError error) : error_(std::move(error)) {}  // NOLINT: as StatusOr.
  bool ok() const { return value_.has_value(); }
  const T& operator*() const& { return *value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  const T* operator->() const { return &*value_; }
  T* operator->() { return &*value_; }
  const ApiError& error() const { return error_; }  // When not ok.

 private:
  std::optional<T> value_;
  ApiError error_;
};

// 400 invalid_request_error.
ApiError InvalidValue(std::string param, std::string message);
ApiError MissingParameter(std::string param);
ApiError Unsupported(std::string param, std::string message);
// 400 context_length_exceeded, with both numbers and words that clients look for. `new_tokens` is
// what was asked for beside the prompt; 0 when the prompt alone is too long.
ApiError ContextLengthExceeded(std::string param, uint64_t prompt_tokens, uint64_t new_tokens,
                               uint64_t context_tokens);

// 404 and 405; the caller of the latter adds Allow.
ApiError ModelNotFound(std::string_view model);
ApiError UnknownUrl(std::string_view method, std::string_view path);
ApiError MethodNotAllowed(std::string_view method, std::string_view path);
// 401 and 403.
ApiError InvalidApiKey(std::string message);
ApiError PermissionDenied(std::string message);
// 501, never to be tried again.
ApiError UnsupportedEndpoint(std::string_view path);
// 503: `code` is "model_loading", "shard_unavailable", "draining" or "no_plan".
ApiError NotServing(std::string code, std::string message, absl::Duration retry_after);
// 500.
ApiError InternalError(std::string message);
// What the server itself refuses: 400, 408, 413, 415, 431, 503, 505.
ApiError HttpRefusal(int status, std::string_view reason);

// By the kind and facts of the failure (base/failure.h): what came before the first byte. A
// failure that would come again tells the client not to retry.
ApiError ErrorOf(const absl::Status& status);

// {"error":{"message","type","param","code",…}}, and "loading" beside it.
std::string ErrorBody(const ApiError& error);
// With Content-Type, Retry-After, WWW-Authenticate and x-should-retry.
HttpResponse ErrorResponse(const ApiError& error);
// What ends a stream whose first byte is out: "data: {…}\n\n".
std::string ErrorEvent(const ApiError& error);

}  // namespace shardline
