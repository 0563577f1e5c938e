#pragma once

// Carries out what SessionsCore decides: grants and records in the store, calls to the nodes,
// events to the clients. Also runs the probe that proves a ring.
//
// Keeps each request's payload (prompt, sampling, held-back bytes) until its end. Lives on the
// coordinator's loop; every answer comes back through it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "coordinator/event_loop.h"
#include "coordinator/generate_request.h"
#include "coordinator/routing/plan.h"
#include "coordinator/sessions/sessions_core.h"
#include "coordinator/store_thread.h"
#include "coordinator/transport/inference_service.h"
#include "coordinator/transport/node_clients.h"
#include "coordinator/transport/utf8_hold.h"

namespace shardline {

// A session that has not ended, as operators see it.
struct SessionSummary {
  std::optional<AttemptKey> key;
  std::string model;
  std::string_view phase;
  uint32_t prompt_tokens = 0;
  uint32_t tokens = 0;  // Delivered.
  uint32_t attempts = 0;
  absl::Duration age;
  absl::Duration budget;  // Left.
  std::vector<RouteStage> route;
};
std::string_view SessionOutcomeName(SessionOutcome outcome);

class SessionDriver {
 public:
  struct Standing {
    AttemptKey key;
    SessionOutcome outcome;
  };

  // All outlive the driver, which outlives their last call into the loop.
  struct World {
    const Clock* clock;
    EventLoop* loop;
    StoreThread* store;
    NodeClients* nodes;
    InferenceService* clients;
    Term term;
  };

  SessionDriver(const World& world, const SessionsOptions& options);

  // Starts a client's request; its stream gets exactly one end.
  void Generate(RequestId request, PreparedRequest prepared, Route route);

  // Sends a real token round `route`; calls `done` once, on the loop.
  void Probe(PreparedRequest prepared, Route route, absl::AnyInvocable<void(absl::Status)> done);

  void OnClientGone(RequestId request);
  std::vector<SessionSummary> List() const;
  // `done` is called once, with the outcome that stands. NotFound: no such session.
  void CancelSession(SessionId session, const std::string& reason,
                     absl::AnyInvocable<void(const absl::StatusOr<Standing>&)> done);
  // Ends every request of the model.
  void CancelModel(const std::string& model);
  void OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                  const std::string& reason);
  void OnShutdown();
  void OnTick();

  // Carries out what the core has decided since; says whether there was anything.
  bool CarryOut();

  Instant NextWake() const { return core_.NextWake(); }
  int running_count() const { return core_.running_count(); }
  bool idle() const { return core_.idle(); }
  const SessionsStats& stats() const { return core_.stats(); }

 private:
  struct Payload {
    PreparedRequest prepared;
    Route route;
    Utf8Hold hold;
    Instant arrived_at = {};
    std::optional<AttemptKey> key = {};
    uint32_t tokens = 0;
    absl::AnyInvocable<void(absl::Status)> probe_done;  // Set for a probe, which has no client.
  };
  struct Run {
    std::shared_ptr<RunCall> call;
    bool ended = false;  // A RunEnd was seen: what the stream says after it changes nothing.
  };

  void Start(RequestId request, Payload payload);

  void Grant(const SessionsActions::Grant& action);
  void Fence(const SessionsActions::Fence& action);
  void Open(const SessionsActions::Open& action);
  void SendStarted(const SessionsActions::Started& action);
  void StartRun(const SessionsActions::Run& action);
  void Deliver(const SessionsActions::Deliver& action);
  void Finish(const SessionsActions::Finish& action);
  void End(const SessionsActions::End& action);

  void OnRunEvent(const AttemptKey& key, const v1::RunAttemptEvent& event);
  void OnRunStreamEnd(const AttemptKey& key, const absl::Status& status);
  void Send(RequestId request, v1::GenerateEvent event);

  const World world_;

  SessionsCore core_;
  absl::flat_hash_map<RequestId, Payload> payloads_;
  absl::flat_hash_map<AttemptKey, Run> runs_;
  absl::flat_hash_map<AttemptKey,
                      std::vector<absl::AnyInvocable<void(const absl::StatusOr<Standing>&)>>>
      cancels_;  // Waiting for the record.
  uint64_t probes_ = 0;
  const v1::RunToken* token_ = nullptr;  // Of the event being taken, for Deliver.
};

}  // namespace shardline
