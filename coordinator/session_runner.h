#pragma once

// One session, run for whoever asks: with or without failover, watched, cancelled.
//
// The coordinator serves its clients and its probes by it (session_driver.h); so can a test, or a
// gateway that speaks another protocol:
//
//   class Printer final : public SessionObserver {
//    public:
//     bool OnToken(const SessionToken& token) override {
//       std::cout << token.token << ' ';
//       return true;
//     }
//     void OnEnd(const SessionEnd& end) override { std::cout << end.status << '\n'; }
//   };
//
//   SL_ASSIGN_OR_RETURN(PreparedRequest prepared, PrepareRequest(message, file, context));
//   const RequestId call = runner.RunWithFailover(
//       {.model = "qwen3", .prepared = std::move(prepared)}, std::make_unique<Printer>());
//   ...
//   runner.Cancel(call);  // Or let it end.
//
// Threads: everything here is called, and calls its observers, on the coordinator's loop. An
// observer must not block, and may call the runner.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "coordinator/generate_request.h"
#include "coordinator/routing/plan.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/head.pb.h"

namespace shardline {

struct SessionSpec {
  std::optional<RequestId> call;  // When the caller numbers its calls; below 2^63, each once.
  std::string model;
  PreparedRequest prepared;
  // With a key, asking again is asking once: a session that runs here is taken over, one that is
  // over is answered from the ledger. With a session, that one goes on.
  SessionIdentity identity = {};
  std::vector<int32_t> tokens_held = {};  // With a session: the answer begins behind them.
};

struct SessionStart {
  AttemptKey key;
  const std::string& model;
  const Route& route;  // Without stages when the answer comes from the ledger.
};

struct SessionRestart {
  AttemptKey key;  // The attempt that takes over.
  const Route& route;
  const absl::Status& reason;
};

struct SessionToken {
  uint32_t index;  // From 0, or from tokens_held; each once, without a gap.
  int32_t token;
  const v1::RunToken* detail;  // Log-probabilities; null for a token that is told again.
};

struct SessionEnd {
  absl::Status status;            // OK: completed, and its record is durable.
  std::optional<AttemptKey> key;  // Empty: none was granted.
  RunResult result;               // When OK.
  absl::Duration ttft;            // Arrival to first token; zero without one.
  absl::Duration total;           // Arrival to now.
};

// Of an attempt's prompt: what was delivered before it counts, too.
struct SessionProgress {
  uint32_t tokens_done;
  uint32_t tokens;
};

class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void OnStarted(const SessionStart&) {}      // First, if at all.
  virtual void OnRestarted(const SessionRestart&) {}  // No token is repeated or left out.
  virtual void OnProgress(const SessionProgress&) {}  // If asked for.
  // False: nobody listens any more, and the session is cancelled.
  virtual bool OnToken(const SessionToken& token) = 0;
  virtual void OnEnd(const SessionEnd& end) = 0;  // Once, last; then it is destroyed.
};

class SessionRunner {
 public:
  virtual ~SessionRunner() = default;

  // One attempt on this route; its failure is the session's.
  virtual RequestId Run(SessionSpec spec, Route route,
                        std::unique_ptr<SessionObserver> observer) = 0;
  // As many attempts as the deadline and the limits allow, on routes without the suspects.
  virtual RequestId RunWithFailover(SessionSpec spec,
                                    std::unique_ptr<SessionObserver> observer) = 0;

  // How a session that runs here stands. To hear its tokens: RunWithFailover with its identity.
  virtual std::optional<SessionSummary> Observe(SessionId session) const = 0;
  virtual std::vector<SessionSummary> List() const = 0;

  // Nothing happens when the call has ended or its session was taken over.
  virtual void Cancel(RequestId call) = 0;

  // The outcome that stands for the session, which may be an earlier one; `done` is called once.
  // NotFound: no such session.
  struct Standing {
    AttemptKey key;
    SessionOutcome outcome;
  };
  virtual void CancelSession(SessionId session, const std::string& reason,
                             absl::AnyInvocable<void(absl::StatusOr<Standing>)> done) = 0;
};

}  // namespace shardline
