#pragma once

// One session, from its request to its one end, over as many attempts as it takes.
//
//   route -> grant -> open on every stage at once -> run on the head -> tokens
//         -> fence on every stage at once + finish record -> end
//   after a failure that a restart may mend: fence the old attempt, find a route without the
//   suspects, and from grant on again, with the tokens delivered so far as forced prefix
//
// Promises: one end, by the request's deadline plus `end_grace`, whatever the store or a node does;
// a success is told only after its record is durable; every stage that was sent an open is sent a
// fence, whether or not it answered; a token goes out only from the current attempt and only under
// the next index; a token that comes again must be the one delivered. The deadline is the
// request's own: no attempt renews it.
//
// Who finds no room (kKvExhausted, kOverloaded) takes another route at once if there is one, else
// it waits in the queue (admission.h) until its deadline. Neither counts as one of the attempts.
//
// Attempts end `unverified` when a step may have been applied and nobody knows: the head's run was
// out and a node died, fell silent or a link broke. Otherwise the record of a replaced attempt is
// `fenced`.
//
// Used by SessionsCore only, which finds the session, calls one event, and forgets it when over().
// Sans-IO, on the coordinator's strand.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/routing/plan.h"
#include "coordinator/sessions/admission.h"
#include "coordinator/sessions/fence_book.h"
#include "coordinator/sessions/restart_policy.h"
#include "coordinator/sessions/session_words.h"

namespace shardline {

struct SessionsOptions {
  AdmissionOptions admission = {};                           // How many, and who waits.
  int attempts_max = 3;                                      // Of one session, waits apart.
  int node_deaths_max = 2;                                   // Under one session; then kPoison.
  absl::Duration retry_after = absl::Seconds(1);             // Told with kOverloaded.
  absl::Duration end_grace = absl::Milliseconds(500);        // The client's end after its deadline.
  absl::Duration open_timeout = absl::Seconds(2);            // For all stages to answer an open.
  absl::Duration classify_grace = absl::Milliseconds(300);   // For membership to name a culprit.
  absl::Duration finish_retry = absl::Milliseconds(100);     // After a finish the store refused.
  absl::Duration suspect_backoff = absl::Milliseconds(500);  // Before a route with suspects; x n.
  absl::Duration route_retry = absl::Milliseconds(250);      // Between questions for a route.
  absl::Duration fence_keep = absl::Seconds(2);              // Owed fences, past the deadline.
  RestartBudget::Options restarts = {};
};

// What the sessions share; all of it outlives them.
struct SessionShared {
  const SessionsOptions* options;
  SessionsActions* actions;
  SessionsStats* stats;
  AdmissionQueue* queue;
  FenceBook* fences;
  RestartBudget* restarts;
  uint64_t* open_seq;
};

class SessionCore {
 public:
  SessionCore(const SessionShared& shared, const SessionRequest& request, Instant now);

  // Once, first.
  void Start(Instant now);

  void OnRoute(const absl::StatusOr<Route>& route, Instant now);
  void OnRoutesChanged(Instant now);
  // Its turn in the queue.
  void OnTurn(Instant now);
  // Not for an admission that neither grants nor ends: SessionsCore attaches that call elsewhere.
  void OnGranted(const absl::StatusOr<Admitted>& admitted, Instant now);
  // Of the current attempt.
  void OnOpenReply(size_t stage, const absl::StatusOr<OpenResult>& reply, Instant now);
  void OnToken(uint32_t index, int32_t token, Instant now);
  void OnRunEnd(const RunResult& result, Instant now);
  void OnRunFailed(const absl::Status& status, Instant now);
  void OnFinished(const absl::StatusOr<SessionOutcome>& stored, Instant now);

  void OnCancel(const std::string& reason, Instant now);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason, Instant now);
  // The node is to be empty by now: goes on elsewhere, if it runs there.
  void OnNodeDrained(const NodeId& node, const std::string& reason, Instant now);
  void OnTick(Instant now);

  // `client` takes the stream over; what it lacks of the tokens delivered is delivered to it. A
  // failure leaves the session and its client as they are: kDiverged when it holds other tokens,
  // kInvalidRequest when it holds more.
  absl::Status Attach(RequestId client, const std::vector<int32_t>& tokens_held, Instant now);

  const SessionRequest& request() const { return request_; }
  // As its route names it, for a request that did not.
  const std::string& model() const {
    return request_.model.empty() ? route_.model : request_.model;
  }
  // Who listens; empty once the end was told.
  std::optional<RequestId> client() const { return client_; }
  RequestId last_client() const { return last_client_; }
  // The attempt that is open in the ledger, or was last.
  const std::optional<AttemptKey>& key() const { return key_; }
  bool waits_for_grant() const { return phase_ == Phase::kGranting; }
  bool over() const { return over_; }  // The record stands, or there is none; nothing is awaited.
  Instant NextWake() const;
  // Whether this life of a node should still hold the current attempt.
  bool LivesOn(const NodeId& node, Incarnation incarnation) const;
  bool RunsThrough(const NodeId& node) const;
  SessionSummary Summary(Instant now) const;

 private:
  enum class Phase {
    kRouting,      // FindRoute is out.
    kWaiting,      // For a route, or for its turn to restart; until ask_at_.
    kQueued,       // For room; until OnTurn.
    kGranting,     // Grant is out.
    kOpening,      // Opens are out.
    kRunning,      // The head runs.
    kClassifying,  // It has failed, and a culprit is looked for; until phase_until_.
    kFinishing,    // The record is to be written.
  };

  // What ends a session; fixed once.
  struct Ending {
    SessionOutcome outcome;
    absl::Status status;  // OK iff completed.
  };

  // Routes and restarts: session_failover.cc.
  void AskForRoute();
  void AskForRouteWithout(const RouteSuspects& avoid);
  void Wait(Instant until);
  void TryAgain(Instant now);
  void Grant(Instant now);
  // An attempt failed: another one, or the end.
  void FailAttempt(const absl::Status& status, Instant now);
  bool MayRestart(const absl::Status& status, RestartRule rule, Instant now) const;
  void Restart(const absl::Status& status, Instant now);
  // It found no room: another route, or the queue.
  void SeekRoom(const absl::Status& status, Instant now);
  void Queue(Instant now);
  // It has not tried yet, and others were first.
  bool MustQueue() const;
  void QueueGranted(Instant now);
  void Suspect(const absl::Status& status);
  // True when the session has ended by it.
  bool CountDeath(Instant now);
  void TakeUpWithoutRoute(Instant now);
  void OnNoRoute(const absl::Status& status, Instant now);
  void OnGrantRefused(const absl::Status& status, Instant now);
  absl::Status Refusal(const Route& route);

  void OpenStages(Instant now);
  void OnOpenRefused(size_t stage, const absl::Status& status, Instant now);
  // Of the prompt and what is delivered: what every stage has, if their answers can be true.
  uint32_t CachedTokens() const;
  const std::vector<int32_t>& ForcedPrefix() const;
  void StartRun(Instant now);
  void Replay(const Admitted& admitted, Instant now);
  absl::Status ReplayTokens(const Admitted& admitted, Instant now);
  void CatchUp(size_t from);
  void Classify(const absl::Status& suspicion, Instant now);
  void End(Ending ending, Instant now);
  void EndFailed(const absl::Status& status, Instant now);
  void CloseStages(FailureKind kind);
  void SendFinish();
  void SendEnd(const absl::Status& status, Instant now);
  // Nothing is awaited any more; `outcome` is what stands.
  void Retire(SessionOutcome outcome);
  void TickRunning(Instant now);
  EndRecord RecordOf(SessionOutcome outcome, const absl::Status& status) const;
  const RouteStage* StageOf(const NodeId& node) const;
  // `reason` as a failure of `stage`, naming its node and layers.
  absl::Status Blame(const RouteStage& stage, FailureKind kind, const std::string& reason) const;
  // `status` with what the session knows: ids, and the blamed node's layers.
  absl::Status Complete(const absl::Status& status) const;
  std::string_view PhaseName() const;

  // Constant after construction.
  const SessionShared shared_;
  const SessionRequest request_;
  const Instant arrived_at_;

  Instant deadline_;
  std::optional<RequestId> client_;
  RequestId last_client_;
  std::vector<int32_t> held_;  // What the client had when it came.
  std::optional<Instant> first_token_at_;
  std::vector<int32_t> delivered_;  // The forced prefix of a later attempt.
  bool started_sent_ = false;
  Phase phase_ = Phase::kRouting;
  Instant phase_until_;  // Of kOpening and kClassifying.
  Instant ask_at_;       // Of kWaiting.

  // The current attempt; from its failure to the next grant, the one before.
  std::optional<AttemptKey> key_;
  Route route_;
  absl::Status route_lost_;  // A node of the route went while the grant was out.
  uint32_t attempts_ = 0;
  uint32_t attempts_without_room_ = 0;  // Of attempts_: these do not count as tries.
  bool tried_ = false;                  // Some attempt was opened, or has waited its turn.
  bool opens_sent_ = false;
  bool closed_ = false;                  // Its stages were fenced.
  std::vector<bool> opened_;             // Stages that have granted their open,
  std::vector<uint32_t> cached_tokens_;  // and what each of them has of the prefix.
  uint32_t run_cached_tokens_ = 0;       // What the head was told of it.
  bool run_out_ = false;                 // The head runs, as far as we know.
  bool ran_ = false;                     // Its head was told to run.
  absl::Status suspicion_;               // What the head said, while a culprit is looked for.
  RunResult result_;

  // What earlier attempts have taught.
  absl::Status failure_;               // Of the last one.
  std::optional<AttemptKey> failed_;   // Its key.
  std::optional<Instant> failed_at_;   // Until the next token.
  std::optional<EndRecord> previous_;  // Its record, until the grant has written it.
  RouteSuspects suspects_;
  RouteSuspects banned_;             // A route with these is no route.
  RouteSuspects full_;               // Had no room, since its turn came or it began.
  std::optional<StagePeer> blamed_;  // By the last failure, and not known to be dead.
  int deaths_ = 0;
  int non_finite_ = 0;
  bool paid_ = true;          // The restart under way has its share of the budget.
  Instant retry_at_;          // Not before on a route with suspects.
  bool last_resort_ = false;  // Suspected nodes were asked for too.

  std::optional<Ending> ending_;  // Set once; then the session only winds down.
  Instant end_by_;                // The client's end, whether or not the record is durable.
  bool finish_out_ = false;       // And not yet answered.
  Instant finish_at_;             // The next try of the record.
  bool over_ = false;
};

}  // namespace shardline
