#pragma once

// What goes into SessionsCore and what comes out of it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/run_result.h"
#include "coordinator/routing/plan.h"

namespace shardline {

// One client call, numbered by the shell. Never used twice in a process.
using RequestId = Id<struct RequestTag>;

struct SessionRequest {
  RequestId request;
  Route route;
  uint32_t prompt_tokens = 0;   // How many; at least one.
  uint32_t new_tokens_max = 0;  // At least one.
  absl::Duration budget;        // Until its deadline.
};

struct RunResult {
  FinishReason reason = FinishReason::kNone;
  uint32_t tokens = 0;  // Generated over all attempts, the stop token excluded.
  int32_t stop_token = 0;
  RunTimings timings;
};

struct FenceResult {
  uint32_t pages_released = 0;
  uint32_t buffers_released = 0;
  bool pages_pinned = false;
};

// The terminal states of an attempt, as the ledger knows them (store/store.h).
enum class SessionOutcome { kCompleted, kFailed, kCancelled, kExpired, kFenced };
std::string_view SessionOutcomeName(SessionOutcome outcome);

// Carried out in the order of the fields, and each list in its own order.
struct SessionsActions {
  // Ask the store for the next epoch; answer with OnGranted.
  struct Grant {
    RequestId request;
    std::optional<SessionId> session;  // Empty: create it, in the same transaction.
    PlanEpoch plan;
    std::string route;
    absl::Duration budget;
  };
  // Tell a stage that the attempt and all older epochs are over.
  struct Fence {
    AttemptKey key;
    size_t stage;
    RouteStage to;
    FailureKind kind;  // kNone: a regular end.
  };
  // Hang up on the head's RunAttempt. Its answer, if one still comes, is reported as usual.
  struct CancelRun {
    AttemptKey key;
  };
  struct Open {
    AttemptKey key;
    RequestId request;
    size_t stage;
    RouteStage to;
    uint32_t tokens_max;  // Prompt plus generation.
    absl::Duration budget;
  };
  // The client's first event. Sent once, when all stages of the first attempt are open.
  struct Started {
    RequestId request;
    AttemptKey key;
  };
  struct Run {
    AttemptKey key;
    RequestId request;
    RouteStage head;
    std::vector<int32_t> delivered;  // The forced prefix.
    absl::Duration budget;
  };
  // The token of the event just taken goes to the client.
  struct Deliver {
    RequestId request;
    AttemptKey key;
    uint32_t index;
    int32_t token;
  };
  // Write the terminal record; answer with OnFinished.
  struct Finish {
    AttemptKey key;
    SessionOutcome outcome;
    uint32_t prompt_tokens;
    uint32_t tokens;
    FailureKind kind;
    std::string detail;
  };
  // The client's last event.
  struct End {
    RequestId request;
    std::optional<AttemptKey> key;  // Empty: none was granted.
    absl::Status status;            // OK: completed, and durably so.
    RunResult result;               // When OK.
    absl::Duration ttft;            // Arrival to first token; zero without one.
    absl::Duration total;           // Arrival to now.
  };

  std::vector<Grant> grant;
  std::vector<Fence> fence;
  std::vector<CancelRun> cancel_run;
  std::vector<Open> open;
  std::vector<Started> started;
  std::vector<Run> run;
  std::vector<Deliver> deliver;
  std::vector<Finish> finish;
  std::vector<End> end;

  bool empty() const {
    return grant.empty() && fence.empty() && cancel_run.empty() && open.empty() &&
           started.empty() && run.empty() && deliver.empty() && finish.empty() && end.empty();
  }
};

struct SessionsStats {
  uint64_t started = 0;  // Every OnGenerate: the next five, and those whose record is still open.
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t expired = 0;
  uint64_t refused = 0;  // Over the limit, or during shutdown.

  uint64_t tokens_delivered = 0;
  uint64_t tokens_dropped = 0;  // Late, doubled or of an older epoch.
  uint64_t fences_sent = 0;
  uint64_t fences_answered = 0;
  uint64_t fences_failed = 0;  // The node could not be reached.
  uint64_t pages_released = 0;
  uint64_t buffers_released = 0;
  uint64_t finish_retries = 0;
};

}  // namespace shardline
