#pragma once

// Every session that runs here: admission, identity, and who hears which event.
//
// What becomes of one session is SessionCore's matter (session_core.h). This keeps the registry:
// at most so many sessions as may run and wait (admission.h); a request for a session that runs
// here, by its key or by its number, takes the stream over instead of running a second time; fences
// that are owed to nodes out of reach; the cluster's budget of restarts. An answer that is late,
// doubled or of an older epoch changes nothing.
//
// The shell owns the request's payload (prompt, sampling) and finds it again by RequestId until
// Forget; it carries out the actions and reports every one of them back exactly once: a route by
// OnRoute, a grant by OnGranted, an open by OnOpenReply, a run by OnRunEnd or OnRunFailed, a fence
// by OnFenceReply, a finish by OnFinished. Sans-IO, on the coordinator's strand.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/routing/plan.h"
#include "coordinator/sessions/admission.h"
#include "coordinator/sessions/fence_book.h"
#include "coordinator/sessions/restart_policy.h"
#include "coordinator/sessions/session_core.h"
#include "coordinator/sessions/session_words.h"

namespace shardline {

class SessionsCore {
 public:
  explicit SessionsCore(const SessionsOptions& options);
  SessionsCore(const SessionsCore&) = delete;  // Its sessions point into it.
  SessionsCore& operator=(const SessionsCore&) = delete;

  // REQUIRES: request.request was not used before. Answered by a find_route, a grant, a rebind of
  // the session it belongs to, or an end.
  void OnGenerate(const SessionRequest& request, Instant now);
  void OnRoute(RequestId request, const absl::StatusOr<Route>& route, Instant now);
  // A model became ready, or a route of one changed: who waits asks again.
  void OnRoutesChanged(Instant now);
  void OnGranted(RequestId request, const absl::StatusOr<Admitted>& admitted, Instant now);
  void OnOpenReply(const AttemptKey& key, size_t stage, const absl::StatusOr<OpenResult>& reply,
                   Instant now);
  void OnToken(const AttemptKey& key, uint32_t index, int32_t token, Instant now);
  void OnRunEnd(const AttemptKey& key, const RunResult& result, Instant now);
  void OnRunFailed(const AttemptKey& key, const absl::Status& status, Instant now);
  void OnFenceReply(const AttemptKey& key, size_t stage, const absl::StatusOr<FenceResult>& result,
                    Instant now);
  // `stored` is what stands in the ledger, which may be an earlier record.
  void OnFinished(const AttemptKey& key, const absl::StatusOr<SessionOutcome>& stored, Instant now);

  // The call that hung up, or asked to stop. Harmless at any time, any number of times, and for a
  // call whose session another one has taken over.
  void OnCancel(RequestId client, Instant now);
  // By an operator; false when no such session runs here.
  bool OnCancelSession(SessionId session, const std::string& reason, Instant now);
  // Every session of the model.
  void OnCancelModel(const std::string& model, Instant now);

  // REQUIRES: called before a successor of the node is welcomed.
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason, Instant now);
  // The node was welcomed, or has reconnected: owed fences of this life are sent again.
  void OnNodeReady(const NodeId& node, Incarnation incarnation, Instant now);
  // What still runs through the node goes on elsewhere: no failure, and no attempt spent.
  void OnNodeDrained(const NodeId& node, const std::string& reason, Instant now);
  // Ends everything that runs and refuses what comes after.
  void OnShutdown(Instant now);
  void OnTick(Instant now);

  bool has_actions() const { return !actions_.empty(); }
  SessionsActions TakeActions();
  // When OnTick has work next; infinite future when there is none.
  Instant NextWake() const;

  // What this life of the node should hold. An attempt that it holds, that is not among these, and
  // whose open_seq is at most as_of, is over.
  LiveAttempts LiveOn(const NodeId& node, Incarnation incarnation) const;
  std::vector<SessionSummary> List(Instant now) const;
  const SessionsStats& stats() const { return stats_; }
  // Sessions whose client has not been told an end.
  int running_count() const;
  // Whose current attempt has stages there.
  int CountThrough(const NodeId& node) const;
  const AdmissionQueue& queue() const { return queue_; }
  // Nothing is kept any more: every request ended, every record written, every fence answered or
  // owed to a node out of reach.
  bool idle() const { return sessions_.empty() && !fences_.any_out(); }

 private:
  using ClientKey = std::pair<std::string, std::string>;  // Tenant, key.

  // Null for every attempt but the current one of a session.
  SessionCore* Current(const AttemptKey& key);
  SessionCore* Find(RequestId request);
  // The session that runs here already for this identity.
  SessionCore* Running(const SessionIdentity& identity);
  void Attach(const SessionRequest& request, SessionCore& session, Instant now);
  // After every event of a session: the indices follow, and what is over is forgotten.
  void Settle(RequestId request);
  // Whoever's turn in the queue has come. Last of every event.
  void GiveTurns(Instant now);
  void Forget(RequestId request);
  // Why no further session is taken; OK if it is.
  absl::Status WhyNoMore(Instant now) const;
  void Refuse(const SessionRequest& request, const absl::Status& status);
  template <typename Event>
  void ForEach(Event event);

  const SessionsOptions options_;

  SessionsStats stats_;
  SessionsActions actions_;
  AdmissionQueue queue_;
  FenceBook fences_;
  RestartBudget restarts_;
  uint64_t open_seq_ = 0;
  bool shut_down_ = false;

  // Ordered, so that equal events give equal actions.
  absl::btree_map<RequestId, std::unique_ptr<SessionCore>> sessions_;
  // Indices over them.
  absl::flat_hash_map<AttemptKey, RequestId> attempts_;
  absl::flat_hash_map<SessionId, RequestId> by_session_;
  absl::flat_hash_map<ClientKey, RequestId> by_key_;
  absl::flat_hash_map<RequestId, RequestId> by_client_;
};

}  // namespace shardline
