#pragma once

// How shardctl ends: the exit code of a failure, and its words on stderr.

#include <string>

#include "absl/status/status.h"

namespace shardline {

// Scripts depend on these numbers: never renumber.
enum class ExitCode {
  kOk = 0,
  kFailed = 1,  // The operation failed.
  kUsage = 2,   // The command line, or the request itself, is wrong.
  kNotFound = 3,
  kUnreachable = 4,  // No coordinator answers.
  kNotHealthy = 5,   // Reached, but not able to serve.
  kRefused = 6,      // A precondition does not hold, or there is no room.
  kTimeout = 7,
  kNotAllowed = 8,
  kInterrupted = 130,
};

ExitCode ExitCodeOf(const absl::Status& status);

// What was being done.
struct ErrorContext {
  std::string endpoint;     // As given.
  bool is_load = false;     // Of a model.
  bool is_node = false;     // One node is cordoned or drained.
  bool is_removal = false;  // One node is taken off the list.
  bool is_session = false;  // One session is looked at or cancelled.
};

// What a person can do about `status`; empty when we do not know.
std::string HintFor(const absl::Status& status, const ErrorContext& context);

// "error: …", the node and its layers if that does not name them, and a hint, one a line; ends
// with a newline. Further lines of a message are indented below its first.
std::string ErrorText(const absl::Status& status, const ErrorContext& context);

// {"error":{"code":…,"kind":…,"message":…,"node":…,"layers":…,"hint":…}} and a newline.
std::string ErrorJson(const absl::Status& status, const ErrorContext& context);

}  // namespace shardline
