#pragma once

// Drives every session from the client's request to its one end.
//
//   request -> grant -> open on every stage at once -> run on the head -> tokens
//           -> fence on every stage at once + finish record -> end
//
// Promises: every request gets exactly one end, by its deadline plus `end_grace`; the terminal
// record is durable before the client sees a success; every stage that was sent an open is sent
// one fence; a token reaches the client only if its attempt is the current one and its index is
// the next one; a lost node ends every session whose route has it, naming the node and its
// layers. An answer that is late, doubled or of an older epoch changes nothing.
//
// The shell owns the request's payload (prompt, sampling) and finds it again by RequestId; it
// carries out the actions and reports every one of them back exactly once: a grant by OnGranted,
// an open by OnOpenReply, a run by OnRunEnd or OnRunFailed, a fence by OnFenceReply, a finish by
// OnFinished. Sans-IO, on the coordinator's strand.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/routing/plan.h"
#include "coordinator/sessions/session_words.h"

namespace shardline {

struct SessionsOptions {
  int sessions_max = 64;                                    // Beyond it: kOverloaded.
  absl::Duration retry_after = absl::Seconds(1);            // Told with kOverloaded.
  absl::Duration end_grace = absl::Milliseconds(500);       // The client's end after its deadline.
  absl::Duration open_timeout = absl::Seconds(5);           // For all stages to answer an open.
  absl::Duration classify_grace = absl::Milliseconds(300);  // For membership to name a culprit.
  absl::Duration finish_retry = absl::Milliseconds(100);    // After a finish the store refused.
};

class SessionsCore {
 public:
  explicit SessionsCore(const SessionsOptions& options);

  // REQUIRES: request.request was not used before; the route has stages. Answered by a grant or
  // an end.
  void OnGenerate(const SessionRequest& request, Instant now);
  void OnGranted(RequestId request, const absl::StatusOr<AttemptKey>& key, Instant now);
  void OnOpenReply(const AttemptKey& key, size_t stage, const absl::Status& status, Instant now);
  void OnToken(const AttemptKey& key, uint32_t index, int32_t token, Instant now);
  void OnRunEnd(const AttemptKey& key, const RunResult& result, Instant now);
  void OnRunFailed(const AttemptKey& key, const absl::Status& status, Instant now);
  void OnFenceReply(const AttemptKey& key, size_t stage, const absl::StatusOr<FenceResult>& result,
                    Instant now);
  // `stored` is what stands in the ledger, which may be an earlier record.
  void OnFinished(const AttemptKey& key, const absl::StatusOr<SessionOutcome>& stored, Instant now);
  // The client hung up, or asked to stop. Harmless at any time, any number of times.
  void OnCancel(RequestId request, Instant now);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason, Instant now);
  // Ends everything that runs and refuses what comes after.
  void OnShutdown(Instant now);
  void OnTick(Instant now);

  SessionsActions TakeActions();
  // When OnTick has work next; infinite future when there is none.
  Instant NextWake() const;

  const SessionsStats& stats() const { return stats_; }
  // Requests that have not ended yet.
  int running_count() const { return running_count_; }
  // Nothing is kept any more: every request ended, every record and fence answered.
  bool idle() const { return sessions_.empty() && fences_.empty(); }

 private:
  enum class Phase { kGranting, kOpening, kRunning, kClassifying, kFinishing };

  // What ends a session; fixed once.
  struct Ending {
    SessionOutcome outcome;
    absl::Status status;  // OK iff completed.
  };

  struct Session {
    SessionRequest request;
    Instant arrived_at;
    Instant deadline;
    Instant first_token_at;
    std::vector<int32_t> delivered;  // The forced prefix of a later attempt.

    // The current attempt.
    std::optional<AttemptKey> key;
    Phase phase = Phase::kGranting;
    bool started_sent = false;
    std::vector<bool> opened;  // Stages that have granted their open.
    bool opens_sent = false;
    bool run_out = false;  // The head runs, as far as we know.
    Instant phase_until;   // Of kOpening and kClassifying.
    absl::Status suspect;  // What the head said, while a culprit is looked for.
    RunResult result;

    std::optional<Ending> ending;  // Set once; then the session only winds down.
    Instant end_by;                // The client's end, whether or not the record is durable.
    bool finish_sent = false;      // And not yet answered.
    Instant finish_at;             // The next try of the record.
    bool end_sent = false;
  };

  Session* Current(const AttemptKey& key);
  void StartRun(Session& session, Instant now);
  // An attempt failed. The one place where a next attempt would be started instead of an end.
  void FailAttempt(Session& session, const absl::Status& status, Instant now);
  void End(Session& session, Ending ending, Instant now);
  void CloseStages(Session& session, FailureKind kind);
  void SendFinish(Session& session);
  void SendEnd(Session& session, const absl::Status& status, Instant now);
  void Refuse(const SessionRequest& request, const absl::Status& status);
  void Count(SessionOutcome outcome);
  // Forgets the session; `outcome` is what stands in the ledger.
  void Retire(RequestId request, SessionOutcome outcome);
  void TickSession(Session& session, Instant now);
  void TickRunning(Session& session, Instant now);
  Instant WakeOf(const Session& session) const;
  // `reason` as a failure of `stage`, naming its node and layers.
  static absl::Status Blame(const Session& session, const RouteStage& stage, FailureKind kind,
                            const std::string& reason);
  // `status` with what the session knows: ids, and the blamed node's layers.
  static absl::Status Complete(const Session& session, const absl::Status& status);

  const SessionsOptions options_;

  // Ordered, so that equal events give equal actions.
  absl::btree_map<RequestId, Session> sessions_;
  absl::flat_hash_map<AttemptKey, RequestId> attempts_;
  absl::flat_hash_set<std::pair<AttemptKey, size_t>> fences_;  // Not answered yet.
  bool shut_down_ = false;
  int running_count_ = 0;
  SessionsStats stats_;
  SessionsActions actions_;
};

}  // namespace shardline
