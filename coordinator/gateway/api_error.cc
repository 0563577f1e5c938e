#include "coordinator/gateway/api_error.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "coordinator/gateway/api_json.h"

namespace shardline {
namespace {

constexpr absl::Duration kRetryAfterMin = absl::Seconds(1);
constexpr absl::Duration kRetryAfterMax = absl::Seconds(60);

constexpr char kInvalidRequestType[] = "invalid_request_error";
constexpr char kServerType[] = "server_error";
constexpr char kTimeoutType[] = "timeout_error";

// Names and texts of clients go into messages only so far.
std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 128;
  std::string out = "\"";
  out += text.substr(0, kShown);
  out += text.size() > kShown ? "...\"" : "\"";
  return out;
}

ApiError BadRequest(std::string code, std::string param, std::string message) {
  ApiError error{.status = 400, .type = kInvalidRequestType, .code = std::move(code)};
  if (!param.empty()) error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

ApiError NotFound(std::string code, std::string message) {
  return {.status = 404,
          .type = kInvalidRequestType,
          .code = std::move(code),
          .message = std::move(message)};
}

ApiError QueueFull(std::string message, absl::Duration retry_after) {
  return {.status = 429,
          .type = "rate_limit_error",
          .code = "queue_full",
          .message = std::move(message),
          .retry_after = retry_after};
}

ApiError DeadlineExceeded(std::string message) {
  return {.status = 504,
          .type = kTimeoutType,
          .code = "deadline_exceeded",
          .message = std::move(message)};
}

ApiError ComesAgain(ApiError error) {
  error.never_retry = true;
  return error;
}

ApiError Cancelled(std::string message) {
  return {.status = 500,
          .type = kServerType,
          .code = "cancelled",
          .message = std::move(message),
          .never_retry = true};
}

ApiError ErrorOfCode(const absl::Status& status, std::string message) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return BadRequest("invalid_value", "", std::move(message));
    case absl::StatusCode::kNotFound:
      return NotFound("model_not_found", std::move(message));
    case absl::StatusCode::kPermissionDenied:
      return PermissionDenied(std::move(message));
    case absl::StatusCode::kUnauthenticated:
      return InvalidApiKey(std::move(message));
    case absl::StatusCode::kResourceExhausted:
      return QueueFull(std::move(message), kRetryAfterMin);
    case absl::StatusCode::kUnavailable:
      return NotServing("shard_unavailable", std::move(message), kRetryAfterMin);
    case absl::StatusCode::kDeadlineExceeded:
      return DeadlineExceeded(std::move(message));
    case absl::StatusCode::kCancelled:
      return Cancelled(std::move(message));
    case absl::StatusCode::kUnimplemented:
      return ComesAgain({.status = 501,
                         .type = "not_implemented_error",
                         .code = "unsupported_endpoint",
                         .message = std::move(message)});
    default:
      return InternalError(std::move(message));
  }
}

Json ErrorObject(const ApiError& error) {
  const auto or_null = [](const std::optional<std::string>& text) {
    return text ? Json(*text) : Json();
  };
  Json object = {{"message", error.message},
                 {"type", error.type},
                 {"param", or_null(error.param)},
                 {"code", or_null(error.code)}};
  if (error.prompt_tokens) object["n_prompt_tokens"] = *error.prompt_tokens;
  if (error.context_tokens) object["n_ctx"] = *error.context_tokens;
  return object;
}

}  // namespace

ApiError InvalidValue(std::string param, std::string message) {
  return BadRequest("invalid_value", std::move(param), std::move(message));
}

ApiError MissingParameter(std::string param) {
  std::string message = absl::StrCat(param, " is required");
  return BadRequest("missing_required_parameter", std::move(param), std::move(message));
}

ApiError Unsupported(std::string param, std::string message) {
  return BadRequest("unsupported_parameter", std::move(param), std::move(message));
}

ApiError ContextLengthExceeded(std::string param, uint64_t prompt_tokens, uint64_t new_tokens,
                               uint64_t context_tokens) {
  const std::string begin =
      absl::StrCat("This model's maximum context length is ", context_tokens, " tokens. However, ");
  std::string message =
      new_tokens == 0
          ? absl::StrCat(begin, "your ", param, " resulted in ", prompt_tokens,
                         " tokens, which leaves no room for an answer. Please reduce the length "
                         "of the ",
                         param, ".")
          : absl::StrCat(begin, "you requested ", prompt_tokens + new_tokens, " tokens (",
                         prompt_tokens, " in the ", param, ", ", new_tokens,
                         " in the completion). Please reduce the length of the ", param,
                         " or of the completion.");
  ApiError error = BadRequest("context_length_exceeded", std::move(param), std::move(message));
  error.prompt_tokens = prompt_tokens;
  error.context_tokens = context_tokens;
  return error;
}

ApiError ModelNotFound(std::string_view model) {
  ApiError error =
      NotFound("model_not_found", absl::StrCat("The model ", Quoted(model), " does not exist"));
  error.param = "model";
  return error;
}

ApiError UnknownUrl(std::string_view method, std::string_view path) {
  return NotFound("unknown_url",
                  absl::StrCat("Unknown request URL: ", Quoted(method), " ", Quoted(path)));
}

ApiError MethodNotAllowed(std::string_view method, std::string_view path) {
  return {.status = 405,
          .type = kInvalidRequestType,
          .code = "method_not_allowed",
          .message = absl::StrCat(Quoted(method), " is not allowed for ", Quoted(path))};
}

ApiError InvalidApiKey(std::string message) {
  return {.status = 401,
          .type = "authentication_error",
          .code = "invalid_api_key",
          .message = std::move(message)};
}

ApiError PermissionDenied(std::string message) {
  return {.status = 403, .type = "permission_error", .message = std::move(message)};
}

ApiError UnsupportedEndpoint(std::string_view path) {
  return ComesAgain({.status = 501,
                     .type = "not_implemented_error",
                     .code = "unsupported_endpoint",
                     .message = absl::StrCat(Quoted(path), " is not supported by this server")});
}

ApiError NotServing(std::string code, std::string message, absl::Duration retry_after) {
  return {.status = 503,
          .type = kServerType,
          .code = std::move(code),
          .message = std::move(message),
          .retry_after = retry_after};
}

ApiError InternalError(std::string message) {
  return {
      .status = 500, .type = kServerType, .code = "internal_error", .message = std::move(message)};
}

ApiError HttpRefusal(int status, std::string_view reason) {
  ApiError error{.status = status, .type = kInvalidRequestType, .message = std::string(reason)};
  switch (status) {
    case 408:
      error.type = kTimeoutType;
      error.code = "request_timeout";
      break;
    case 413:
      error.code = "request_too_large";
      break;
    case 415:
      error.code = "unsupported_media_type";
      break;
    case 503:
      error.type = kServerType;
      error.code = "too_many_connections";
      error.retry_after = kRetryAfterMin;
      break;
    default:
      if (status >= 500) error.never_retry = true;  // Another version of HTTP stays another one.
      break;
  }
  return error;
}

ApiError ErrorOf(const absl::Status& status) {
  const FailureDetail detail = FailureDetailOf(status);
  std::string message(status.message());
  switch (detail.kind) {
    case FailureKind::kInvalidRequest:
    case FailureKind::kKeyConflict:  // Not 409, which clients take for something to try again.
      return BadRequest("invalid_value", "", std::move(message));
    case FailureKind::kDeadlineExceeded:
      return DeadlineExceeded(std::move(message));
    case FailureKind::kCancelled:
      return Cancelled(std::move(message));
    case FailureKind::kUnauthorised:
      return PermissionDenied(std::move(message));
    case FailureKind::kOverloaded:
      // With a node to blame it is that node's layers that are missing.
      if (!detail.node.empty()) {
        return NotServing("shard_unavailable", std::move(message), detail.retry_after);
      }
      return QueueFull(std::move(message), detail.retry_after);
    case FailureKind::kKvExhausted:
      return QueueFull(std::move(message), detail.retry_after);
    case FailureKind::kHeartbeatLost:
    case FailureKind::kWorkerDeath:
    case FailureKind::kDeviceLost:
    case FailureKind::kStreamReset:
    case FailureKind::kCacheMiss:
    case FailureKind::kStaleEpoch:
    case FailureKind::kIncompatibleRecipe:
    case FailureKind::kUncertain:
    case FailureKind::kChecksumMismatch:
      return NotServing("shard_unavailable", std::move(message), detail.retry_after);
    case FailureKind::kNonFinite:  // The same numbers would come out again.
    case FailureKind::kPoison:
      return ComesAgain(InternalError(std::move(message)));
    case FailureKind::kStepConflict:
    case FailureKind::kStepInFlight:
    case FailureKind::kMalformedBundle:
    case FailureKind::kDiverged:
      return InternalError(std::move(message));
    case FailureKind::kNone:
      return ErrorOfCode(status, std::move(message));
  }
  return InternalError(std::move(message));
}

std::string ErrorBody(const ApiError& error) {
  Json body = {{"error", ErrorObject(error)}};
  if (!error.loading_json.empty()) {
    const ApiResult<Json> loading = ParseJson(error.loading_json);
    if (loading.ok()) body["loading"] = *loading;
  }
  return JsonLine(body);
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = ErrorBody(error)};
  response.headers.emplace_back("Content-Type", "application/json");
  if (error.status == 429 || error.status == 503 || error.retry_after) {
    const absl::Duration wait =
        std::clamp(error.retry_after.value_or(kRetryAfterMin), kRetryAfterMin, kRetryAfterMax);
    response.headers.emplace_back(
        "Retry-After", absl::StrCat(absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1)))));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.never_retry) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

std::string ErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", JsonLine({{"error", ErrorObject(error)}}), "\n\n");
}

}  // namespace shardline
