#pragma once

// Why something failed, in the words our own code decides by.
//
// The absl code of a status tells strangers what to do; the FailureKind drives us. The kind and
// its details travel as a payload of the status (and, through proto/wire, over gRPC). Code that
// decides reads FailureKindOf(status) and never parses a message. docs/failures.md has one row a
// kind: who acts, how, and whether a restart may help.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/layer_range.h"

namespace shardline {

// The numbers are the wire's (FailureDetail.kind): never renumber, only append.
enum class FailureKind : int32_t {
  kNone = 0,                 // Not one of our failures; only the absl code is known.
  kInvalidRequest = 1,       // The client must fix it; never retried.
  kDeadlineExceeded = 2,     // Everyone stops the step and frees its KV.
  kCancelled = 3,            // Everyone releases and acknowledges.
  kHeartbeatLost = 4,        // A node fell silent: new epoch on a route without it.
  kWorkerDeath = 5,          // A node died: new epoch; the step in flight is unverified.
  kDeviceLost = 6,           // As kWorkerDeath, for the device of a live process.
  kStreamReset = 7,          // Both ends compare; resume if certain, else restart.
  kCacheMiss = 8,            // The KV is not there: restart from token zero.
  kStaleEpoch = 9,           // The sender was fenced; it drops the work.
  kIncompatibleRecipe = 10,  // Other weights, formats or numerics: another route.
  kStepConflict = 11,        // Same key with other content, or a gap: a bug or an attack.
  kStepInFlight = 12,        // The answer is coming; the original is unharmed.
  kUncertain = 13,           // Verify, or restart on a new epoch; never replayed silently.
  kMalformedBundle = 14,     // The receiver refuses the row or closes the link.
  kChecksumMismatch = 15,    // Refuse, ask for a resend once; count and alert.
  kNonFinite = 16,           // NaN or infinity: end the request, naming the stage.
  kOverloaded = 17,          // A queue is full: wait retry_after, or another route.
  kKvExhausted = 18,         // Too few free pages: as kOverloaded.
  kPoison = 19,              // Two nodes died under this session: it ends, and is not tried again.
  kDiverged = 20,            // A token made anew differs from the one delivered: never spliced.
  kKeyConflict = 21,         // The idempotency key belongs to another request.
  kUnauthorised = 22,        // The sender is not who may ask this; nothing was looked at.
};

// Number of kinds; every value in [0, kFailureKindCount) is valid.
inline constexpr int32_t kFailureKindCount = 23;

// Where it failed and when to come back. Everything is optional; what is known is set once, at
// the place that knows it.
struct FailureDetail {
  FailureKind kind = FailureKind::kNone;
  std::optional<SessionId> session;
  std::optional<Epoch> epoch;
  std::optional<StepIndex> step;
  NodeId node;                       // Empty: no node is to blame.
  std::optional<LayerRange> layers;  // What `node` held.
  // The node that says so, when what failed is its link to `node`; empty: not a matter of a link.
  NodeId reporter;
  absl::Duration retry_after = absl::ZeroDuration();

  friend bool operator==(const FailureDetail&, const FailureDetail&) = default;
};

// The kind's name as in code, logs, metrics and documents: "kStaleEpoch" is "stale_epoch".
std::string_view FailureKindName(FailureKind kind);

// The absl code that belongs to `kind`; kUnknown for kNone.
absl::StatusCode FailureCode(FailureKind kind);

// True if a new attempt on a new epoch (or another route) may succeed.
bool RestartMayHelp(FailureKind kind);

// A status with the code of `detail.kind` and `detail` as payload.
// REQUIRES: detail.kind != kNone.
absl::Status MakeFailure(const FailureDetail& detail, std::string_view message);
inline absl::Status MakeFailure(FailureKind kind, std::string_view message) {
  return MakeFailure(FailureDetail{.kind = kind}, message);
}

// The kind a status carries; kNone when it carries none, or one this build does not know.
FailureKind FailureKindOf(const absl::Status& status);

// All details a status carries; kind is kNone when it carries none.
FailureDetail FailureDetailOf(const absl::Status& status);

// `status` with `detail` in place of what it carried; the message stays, the code follows the kind.
absl::Status WithFailureDetail(const absl::Status& status, const FailureDetail& detail);

}  // namespace shardline
