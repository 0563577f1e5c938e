#pragma once

// The coordinator's session runner: carries out what SessionsCore decides. Grants and records in
// the store, calls to the nodes, routes from whoever chooses them, events to observers.
//
// Keeps each request's payload (prompt, sampling) until the core forgets it, and each observer
// until its end. Lives on the coordinator's loop; every answer comes back through it.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/prefix_chain.h"
#include "coordinator/event_loop.h"
#include "coordinator/generate_request.h"
#include "coordinator/routing/plan.h"
#include "coordinator/session_runner.h"
#include "coordinator/sessions/sessions_core.h"
#include "coordinator/store_thread.h"
#include "coordinator/transport/node_clients.h"

namespace shardline {

class SessionDriver final : public SessionRunner {
 public:
  // All outlive the driver, which outlives their last call into the loop.
  struct World {
    const Clock* clock;
    EventLoop* loop;
    StoreThread* store;
    NodeClients* nodes;
    Term term;
    // A route of a ready model without what is to be avoided; rather where a prompt of the same
    // affinity has been.
    std::function<absl::StatusOr<Route>(const std::string& model, const RouteSuspects& avoid,
                                        uint64_t affinity)>
        find_route;
    // An attempt failed by this link; may be empty.
    std::function<void(const NodeId& from, const NodeId& to)> suspect_link;
    // A session went on by a new attempt; may be empty.
    std::function<void(const AttemptKey& to, const absl::Status& reason)> restarted;
    bool prefix_cache = true;  // False: no prompt is looked up, and nothing is kept of any.
  };

  SessionDriver(World world, const SessionsOptions& options);

  RequestId Run(SessionSpec spec, Route route, std::unique_ptr<SessionObserver> observer) override;
  RequestId RunWithFailover(SessionSpec spec, std::unique_ptr<SessionObserver> observer) override;
  std::optional<SessionSummary> Observe(SessionId session) const override;
  std::vector<SessionSummary> List() const override;
  void Cancel(RequestId call) override;
  void CancelSession(SessionId session, const std::string& reason,
                     absl::AnyInvocable<void(absl::StatusOr<Standing>)> done) override;

  // Ends every request of the model.
  void CancelModel(const std::string& model);
  // Before a successor is welcomed: CarryOut must have fenced the old life's attempts.
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason);
  // Connected, or connected again.
  void OnNodeReady(const NodeId& node, Incarnation incarnation);
  void OnRoutesChanged();
  void OnNodeDrained(const NodeId& node, const std::string& reason);
  void OnShutdown();
  void OnTick();

  // Carries out what the core has decided since; says whether there was anything.
  bool CarryOut();

  // For the reply to a beat of that life of the node.
  LiveAttempts LiveOn(const NodeId& node, Incarnation incarnation) const {
    return core_.LiveOn(node, incarnation);
  }
  Instant NextWake() const { return core_.NextWake(); }
  int running_count() const { return core_.running_count(); }
  int CountThrough(const NodeId& node) const { return core_.CountThrough(node); }
  const AdmissionQueue& queue() const { return core_.queue(); }
  bool idle() const { return core_.idle(); }
  const SessionsStats& stats() const { return core_.stats(); }

 private:
  struct Payload {
    PreparedRequest prepared;
    std::string model;
    RequestId client;                  // That listens now.
    std::optional<SessionId> session;  // Once it is known.
    PrefixKey root;                    // Of the route; empty: nothing is looked up.
    std::vector<PrefixKey> keys;       // Of the prompt and what was delivered, as far as asked for.
  };
  struct HeadRun {
    RequestId request;  // Of the session.
    std::shared_ptr<RunCall> call;
    bool ended = false;  // A RunEnd was seen: what the stream says after it changes nothing.
  };
  using Waiter = absl::AnyInvocable<void(absl::StatusOr<Standing>)>;

  RequestId Start(SessionSpec spec, std::optional<Route> route,
                  std::unique_ptr<SessionObserver> observer);
  SessionObserver* ObserverOf(RequestId client);
  void AnswerWaiters(SessionId session, const absl::StatusOr<Standing>& standing);

  void FindRoute(const SessionsActions::FindRoute& action);
  void Grant(const SessionsActions::Grant& action);
  void Fence(const SessionsActions::Fence& action);
  void Open(const SessionsActions::Open& action);
  void NamePrefix(const SessionsActions::Open& action, v1::OpenRequest& request);
  void Rebind(const SessionsActions::Rebind& action);
  void Started(const SessionsActions::Started& action);
  void Restarted(const SessionsActions::Restarted& action);
  void StartRun(const SessionsActions::Run& action);
  void Deliver(const SessionsActions::Deliver& action);
  void Finish(const SessionsActions::Finish& action);
  void End(const SessionsActions::End& action);
  void Forget(const SessionsActions::Forget& action);

  void TellProgress(RequestId request, const v1::RunProgress& progress);
  void OnRunEvent(const AttemptKey& key, const v1::RunAttemptEvent& event);
  void OnRunStreamEnd(const AttemptKey& key, const absl::Status& status);

  const World world_;

  SessionsCore core_;
  absl::flat_hash_map<RequestId, Payload> payloads_;                            // By session.
  absl::flat_hash_map<RequestId, std::unique_ptr<SessionObserver>> observers_;  // By client.
  absl::flat_hash_map<AttemptKey, HeadRun> runs_;
  absl::flat_hash_map<SessionId, std::vector<Waiter>> waiters_;  // For a session's record.
  uint64_t own_calls_ = 0;
  const v1::RunToken* token_ = nullptr;  // Of the event being taken, for Deliver.
};

}  // namespace shardline
