#include "coordinator/ctl/exit_code.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/failure.h"

namespace shardline {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnavailable:
      // A failure with a kind was told to us by a coordinator; without one, nobody answered.
      return FailureKindOf(status) == FailureKind::kNone ? ExitCode::kUnreachable
                                                         : ExitCode::kNotHealthy;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kRefused;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimeout;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kNotAllowed;
    default:
      return ExitCode::kFailed;
  }
}

std::string HintFor(const absl::Status& status, const ErrorContext& context) {
  const FailureDetail detail = FailureDetailOf(status);
  switch (detail.kind) {
    case FailureKind::kHeartbeatLost:
    case FailureKind::kWorkerDeath:
    case FailureKind::kDeviceLost:
    case FailureKind::kStreamReset:
      if (!detail.node.empty()) {
        return absl::StrCat("see `shardctl node list -o wide`; once ", detail.node.value(),
                            " is up again it loads its shard by itself");
      }
      return "see `shardctl status`";
    case FailureKind::kOverloaded:
    case FailureKind::kKvExhausted:
      if (context.is_load) {
        return "add a node, unload another model, or take a smaller --context or --sessions";
      }
      if (detail.retry_after > absl::ZeroDuration()) {
        return absl::StrCat("try again in ", absl::FormatDuration(detail.retry_after));
      }
      return "try again, or ask for fewer tokens";
    case FailureKind::kDeadlineExceeded:
      return "--deadline allows more time; `shardctl status` shows whether the model is healthy";
    case FailureKind::kIncompatibleRecipe:
      return "every node of a model must hold the same file and run the same build";
    case FailureKind::kCacheMiss:
    case FailureKind::kUncertain:
    case FailureKind::kStepInFlight:
      return "try again; `shardctl ledger list --session ID` shows what became of each attempt";
    case FailureKind::kStaleEpoch:
      return "another coordinator or a newer attempt took over, or the session is forgotten; see "
             "`shardctl status`";
    case FailureKind::kStepConflict:
    case FailureKind::kMalformedBundle:
    case FailureKind::kChecksumMismatch:
      return "two nodes disagree about bytes: check that all run the same build, then the network "
             "between them";
    case FailureKind::kNonFinite:
      return "the weights or the device of that node are at fault: load the model anew, or drain "
             "it";
    case FailureKind::kPoison:
      return "do not send it again before the logs of the lost nodes say what killed them";
    case FailureKind::kDiverged:
      return "nodes compute differently: they must run the same build on the same kind of device";
    case FailureKind::kKeyConflict:
      return "a new request needs a new idempotency key; the old key answers the old request alone";
    case FailureKind::kUnauthorised:
      return "is this the coordinator that the nodes have joined? see `shardctl status`";
    case FailureKind::kCancelled:
      return "`shardctl ledger list --session ID` shows who cancelled it";
    case FailureKind::kInvalidRequest:  // The message says what to write.
    case FailureKind::kNone:
      break;
  }
  switch (ExitCodeOf(status)) {
    case ExitCode::kUnreachable:
      return absl::StrCat("is shardline-coordinator running at ", context.endpoint,
                          "? --endpoint or SHARDLINE_ENDPOINT names another");
    case ExitCode::kNotFound:
      if (context.is_node || context.is_removal) return "see `shardctl node list`";
      if (context.is_session) return "see `shardctl session list` and `shardctl ledger list`";
      if (context.is_load) return "the coordinator opens the path, on its own machine";
      return "see `shardctl model list`";
    case ExitCode::kRefused:
      if (!context.is_node) return "";
      return "add a node, or --force: its sessions then wait for a route until their deadlines";
    case ExitCode::kTimeout:
      return "--timeout allows more time";
    default:
      return "";
  }
}

namespace {

// gRPC's own words on a connection end with the reason: "…; last error: …: Connection refused".
std::string ConnectionReason(const std::string& message) {
  const size_t last = message.rfind(": ");
  const bool is_chain = absl::StrContains(message, "last error: ") && last != message.npos;
  return is_chain ? message.substr(last + 2) : message;
}

}  // namespace

std::string ErrorText(const absl::Status& status, const ErrorContext& context) {
  const FailureDetail detail = FailureDetailOf(status);
  std::string message =
      absl::StrReplaceAll(status.message(), {{"\n", "\n       "}});  // Below "error: ".
  std::string text = "error: ";
  if (ExitCodeOf(status) == ExitCode::kUnreachable) {
    absl::StrAppend(&text, "no coordinator answers at ", context.endpoint, ": ");
    message = ConnectionReason(message);
  }
  absl::StrAppend(&text, message, "\n");
  if (!detail.node.empty()) {
    std::string where = detail.node.value();
    bool is_told = absl::StrContains(message, where);
    if (detail.layers.has_value() && !detail.layers->empty()) {
      is_told = is_told && absl::StrContains(message, detail.layers->ToString());
      absl::StrAppend(&where, ", which holds ", detail.layers->ToString());
    }
    if (!is_told) absl::StrAppend(&text, "node:  ", where, "\n");
  }
  const std::string hint = HintFor(status, context);
  if (!hint.empty()) absl::StrAppend(&text, "hint:  ", hint, "\n");
  return text;
}

std::string ErrorJson(const absl::Status& status, const ErrorContext& context) {
  const FailureDetail detail = FailureDetailOf(status);
  nlohmann::ordered_json error;
  error["code"] = absl::StatusCodeToString(status.code());
  if (detail.kind != FailureKind::kNone) error["kind"] = std::string(FailureKindName(detail.kind));
  error["message"] = std::string(status.message());
  if (!detail.node.empty()) error["node"] = detail.node.value();
  if (detail.layers.has_value()) {
    error["layers"] = {{"begin", detail.layers->begin}, {"end", detail.layers->end}};
  }
  const std::string hint = HintFor(status, context);
  if (!hint.empty()) error["hint"] = hint;
  const nlohmann::ordered_json whole = {{"error", error}};
  return whole.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace shardline
