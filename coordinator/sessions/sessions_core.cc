#include "coordinator/sessions/sessions_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace shardline {
namespace {

constexpr size_t kDetailBytesMax = 1024;  // Of a record; messages come from peers.

// A connection broke: who is to blame is not yet known.
bool IsConnectionLoss(const absl::Status& status) {
  const FailureKind kind = FailureKindOf(status);
  return kind == FailureKind::kStreamReset ||
         (kind == FailureKind::kNone && absl::IsUnavailable(status));
}

std::string StageText(const RouteStage& stage) {
  return absl::StrCat(stage.node.value(), " (", stage.layers.ToString(), ")");
}

std::string Seconds(absl::Duration d) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(d));
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

SessionsCore::SessionsCore(const SessionsOptions& options) : options_(options) {}

void SessionsCore::OnGenerate(const SessionRequest& request, Instant now) {
  SL_CHECK(!sessions_.contains(request.request), "request ", request.request.value());
  SL_CHECK(!request.route.stages.empty());
  ++stats_.started;
  if (request.prompt_tokens == 0 || request.new_tokens_max == 0) {
    Refuse(request, MakeFailure(FailureKind::kInvalidRequest,
                                "a request needs at least one prompt token and one new token"));
    return;
  }
  if (shut_down_ || sessions_.size() >= static_cast<size_t>(options_.sessions_max)) {
    Refuse(request,
           MakeFailure(
               FailureDetail{.kind = FailureKind::kOverloaded, .retry_after = options_.retry_after},
               shut_down_ ? std::string("the coordinator is shutting down")
                          : absl::StrCat("all ", options_.sessions_max, " sessions are taken")));
    return;
  }
  if (request.budget <= absl::ZeroDuration()) {
    Refuse(request, MakeFailure(FailureKind::kDeadlineExceeded, "no time left on arrival"));
    return;
  }
  Session& session = sessions_[request.request];
  session.request = request;
  session.arrived_at = now;
  session.deadline = now + request.budget;
  session.end_by = session.deadline + options_.end_grace;
  session.opened.assign(request.route.stages.size(), false);
  ++running_count_;
  actions_.grant.push_back({.request = request.request,
                            .session = std::nullopt,
                            .plan = request.route.plan,
                            .route = request.route.ToString(),
                            .budget = request.budget});
}

void SessionsCore::OnGranted(RequestId request, const absl::StatusOr<AttemptKey>& key,
                             Instant now) {
  auto found = sessions_.find(request);
  if (found == sessions_.end() || found->second.phase != Phase::kGranting) return;
  Session& session = found->second;
  if (!key.ok()) {
    // There is no attempt, so there is no record to wait for.
    session.phase = Phase::kFinishing;
    End(session, Ending{.outcome = SessionOutcome::kFailed, .status = key.status()}, now);
    if (!session.end_sent) SendEnd(session, session.ending->status, now);
    Retire(request, session.ending->outcome);
    return;
  }
  session.key = *key;
  attempts_[*key] = request;
  session.phase = Phase::kOpening;
  if (session.ending) {
    // It ended while the store was busy; no stage has heard of it.
    SendFinish(session);
    return;
  }
  session.phase_until = now + options_.open_timeout;
  TickSession(session, now);
  if (session.ending) return;
  session.opens_sent = true;
  for (size_t i = 0; i < session.request.route.stages.size(); ++i) {
    actions_.open.push_back(
        {.key = *key,
         .request = request,
         .stage = i,
         .to = session.request.route.stages[i],
         .tokens_max = session.request.prompt_tokens + session.request.new_tokens_max,
         .budget = session.deadline - now});
  }
}

void SessionsCore::OnOpenReply(const AttemptKey& key, size_t stage, const absl::Status& status,
                               Instant now) {
  Session* session = Current(key);
  if (session == nullptr || session->phase != Phase::kOpening) return;
  SL_CHECK(stage < session->opened.size());
  TickSession(*session, now);
  if (session->ending) return;
  const RouteStage& from = session->request.route.stages[stage];
  if (!status.ok()) {
    FailureDetail detail = FailureDetailOf(status);
    if (IsConnectionLoss(status)) detail.kind = FailureKind::kStreamReset;
    if (detail.kind == FailureKind::kOverloaded || detail.kind == FailureKind::kKvExhausted) {
      if (detail.retry_after <= absl::ZeroDuration()) detail.retry_after = options_.retry_after;
    }
    if (detail.node.empty()) detail.node = from.node;
    const std::string message = absl::StrCat(StageText(from), " refused: ", Text(status));
    const absl::Status failure = detail.kind == FailureKind::kNone
                                     ? absl::Status(status.code(), message)
                                     : Complete(*session, MakeFailure(detail, message));
    if (IsConnectionLoss(status)) {
      session->phase = Phase::kClassifying;
      session->phase_until = std::min(now + options_.classify_grace, session->deadline);
      session->suspect = failure;
      return;
    }
    FailAttempt(*session, failure, now);
    return;
  }
  session->opened[stage] = true;
  const auto& opened = session->opened;
  if (std::find(opened.begin(), opened.end(), false) == opened.end()) StartRun(*session, now);
}

void SessionsCore::StartRun(Session& session, Instant now) {
  session.phase = Phase::kRunning;
  session.run_out = true;
  if (!session.started_sent) {
    session.started_sent = true;
    actions_.started.push_back({.request = session.request.request, .key = *session.key});
  }
  actions_.run.push_back({.key = *session.key,
                          .request = session.request.request,
                          .head = session.request.route.stages.front(),
                          .delivered = session.delivered,
                          .budget = session.deadline - now});
}

void SessionsCore::OnToken(const AttemptKey& key, uint32_t index, int32_t token, Instant now) {
  Session* session = Current(key);
  if (session == nullptr || session->ending || session->phase != Phase::kRunning) {
    ++stats_.tokens_dropped;
    return;
  }
  TickSession(*session, now);
  const uint32_t next = static_cast<uint32_t>(session->delivered.size());
  if (session->ending || index < next) {
    ++stats_.tokens_dropped;
    return;
  }
  if (index > next || next >= session->request.new_tokens_max) {
    ++stats_.tokens_dropped;
    FailAttempt(*session,
                Blame(*session, session->request.route.stages.front(), FailureKind::kStepConflict,
                      absl::StrCat("the head sent token ", index, " where token ", next,
                                   " of at most ", session->request.new_tokens_max, " is next")),
                now);
    return;
  }
  if (next == 0) session->first_token_at = now;
  session->delivered.push_back(token);
  ++stats_.tokens_delivered;
  actions_.deliver.push_back(
      {.request = session->request.request, .key = key, .index = index, .token = token});
}

void SessionsCore::OnRunEnd(const AttemptKey& key, const RunResult& result, Instant now) {
  Session* session = Current(key);
  if (session == nullptr || !session->run_out) return;
  session->run_out = false;
  if (session->ending) return;
  TickSession(*session, now);
  if (session->ending) return;
  if (result.tokens != session->delivered.size()) {
    FailAttempt(*session,
                Blame(*session, session->request.route.stages.front(), FailureKind::kStepConflict,
                      absl::StrCat("the head ended after ", result.tokens, " tokens, but ",
                                   session->delivered.size(), " have arrived")),
                now);
    return;
  }
  session->result = result;
  End(*session, Ending{.outcome = SessionOutcome::kCompleted, .status = absl::OkStatus()}, now);
}

void SessionsCore::OnRunFailed(const AttemptKey& key, const absl::Status& status, Instant now) {
  SL_CHECK(!status.ok());
  Session* session = Current(key);
  if (session == nullptr || !session->run_out) return;
  session->run_out = false;
  if (session->ending) return;
  TickSession(*session, now);
  if (session->ending) return;
  if (!IsConnectionLoss(status)) {
    FailAttempt(*session, Complete(*session, status), now);
    return;
  }
  // Either the head's call broke, or the head reports that a link of the ring did. Membership
  // will soon know which node is gone; until then the head's word is only a suspicion.
  FailureDetail detail = FailureDetailOf(status);
  detail.kind = FailureKind::kStreamReset;
  if (detail.node.empty()) detail.node = session->request.route.stages.front().node;
  session->suspect = Complete(
      *session, MakeFailure(detail, absl::StrCat(detail.node.value(), ": ", Text(status))));
  session->phase = Phase::kClassifying;
  session->phase_until = std::min(now + options_.classify_grace, session->deadline);
}

void SessionsCore::OnFenceReply(const AttemptKey& key, size_t stage,
                                const absl::StatusOr<FenceResult>& result, Instant) {
  if (fences_.erase({key, stage}) == 0) return;
  if (!result.ok()) {
    ++stats_.fences_failed;
    return;
  }
  ++stats_.fences_answered;
  stats_.pages_released += result->pages_released;
  stats_.buffers_released += result->buffers_released;
}

void SessionsCore::OnFinished(const AttemptKey& key, const absl::StatusOr<SessionOutcome>& stored,
                              Instant now) {
  Session* session = Current(key);
  if (session == nullptr || !session->finish_sent) return;
  session->finish_sent = false;
  const bool superseded =
      !stored.ok() && FailureKindOf(stored.status()) == FailureKind::kStaleEpoch;
  if (!stored.ok() && !superseded) {
    ++stats_.finish_retries;
    session->finish_at = now + options_.finish_retry;
    return;
  }
  const RequestId request = session->request.request;
  if (!session->end_sent) {
    // Another coordinator may have closed the attempt; then its word stands, not ours.
    const bool ours = stored.ok() && *stored == session->ending->outcome;
    SendEnd(*session,
            ours || !session->ending->status.ok()
                ? session->ending->status
                : Complete(*session,
                           MakeFailure(
                               FailureKind::kStaleEpoch,
                               absl::StrCat("another coordinator closed this attempt as ",
                                            stored.ok() ? std::string(SessionOutcomeName(*stored))
                                                        : std::string("its own")))),
            now);
  }
  Retire(request, stored.ok() ? *stored : SessionOutcome::kFenced);
}

void SessionsCore::OnCancel(RequestId request, Instant now) {
  auto found = sessions_.find(request);
  if (found == sessions_.end() || found->second.ending) return;
  Session& session = found->second;
  End(session,
      Ending{.outcome = SessionOutcome::kCancelled,
             .status = Complete(
                 session, MakeFailure(FailureKind::kCancelled, "the client gave the request up"))},
      now);
}

void SessionsCore::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                              const std::string& reason, Instant now) {
  for (auto& [request, session] : sessions_) {
    if (session.ending) continue;
    const auto& stages = session.request.route.stages;
    const auto lost = std::find_if(stages.begin(), stages.end(), [&](const RouteStage& stage) {
      return stage.node == node && stage.incarnation <= incarnation;
    });
    if (lost != stages.end()) FailAttempt(session, Blame(session, *lost, kind, reason), now);
  }
}

void SessionsCore::OnShutdown(Instant now) {
  shut_down_ = true;
  for (auto& [request, session] : sessions_) {
    End(session,
        Ending{.outcome = SessionOutcome::kCancelled,
               .status = Complete(session, MakeFailure(FailureKind::kCancelled,
                                                       "the coordinator is shutting down"))},
        now);
  }
}

void SessionsCore::OnTick(Instant now) {
  for (auto& [request, session] : sessions_) TickSession(session, now);
}

SessionsActions SessionsCore::TakeActions() { return std::exchange(actions_, SessionsActions()); }

Instant SessionsCore::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [request, session] : sessions_) wake = std::min(wake, WakeOf(session));
  return wake;
}

// The session whose current attempt is `key`; null for every older or unknown one.
SessionsCore::Session* SessionsCore::Current(const AttemptKey& key) {
  auto found = attempts_.find(key);
  if (found == attempts_.end()) return nullptr;
  Session& session = sessions_.at(found->second);
  return session.key == key ? &session : nullptr;
}

void SessionsCore::FailAttempt(Session& session, const absl::Status& status, Instant now) {
  const bool expired = FailureKindOf(status) == FailureKind::kDeadlineExceeded;
  End(session,
      Ending{.outcome = expired ? SessionOutcome::kExpired : SessionOutcome::kFailed,
             .status = status},
      now);
}

void SessionsCore::End(Session& session, Ending ending, Instant now) {
  if (session.ending) return;
  // A success waits for its record; anything else is told soon, whatever the store does.
  if (!ending.status.ok()) session.end_by = std::min(now, session.deadline) + options_.end_grace;
  const FailureKind kind = FailureKindOf(ending.status);
  session.ending = std::move(ending);
  session.finish_at = now;
  if (!session.key) return;  // The grant is still out, or has failed.
  CloseStages(session, kind);
  session.phase = Phase::kFinishing;
  SendFinish(session);
}

void SessionsCore::CloseStages(Session& session, FailureKind kind) {
  if (session.run_out) actions_.cancel_run.push_back({.key = *session.key});
  if (!session.opens_sent) return;
  // Also where the open was refused or is still on its way: the fence is the tombstone.
  const auto& stages = session.request.route.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    fences_.insert({*session.key, i});
    ++stats_.fences_sent;
    actions_.fence.push_back({.key = *session.key, .stage = i, .to = stages[i], .kind = kind});
  }
}

void SessionsCore::SendFinish(Session& session) {
  session.finish_sent = true;
  actions_.finish.push_back({.key = *session.key,
                             .outcome = session.ending->outcome,
                             .prompt_tokens = session.request.prompt_tokens,
                             .tokens = static_cast<uint32_t>(session.delivered.size()),
                             .kind = FailureKindOf(session.ending->status),
                             .detail = Text(session.ending->status).substr(0, kDetailBytesMax)});
}

void SessionsCore::SendEnd(Session& session, const absl::Status& status, Instant now) {
  SL_CHECK(!session.end_sent);
  session.end_sent = true;
  --running_count_;
  const bool spoke = !session.delivered.empty();
  actions_.end.push_back(
      {.request = session.request.request,
       .key = session.key,
       .status = status,
       .result = status.ok() ? session.result : RunResult(),
       .ttft = spoke ? session.first_token_at - session.arrived_at : absl::ZeroDuration(),
       .total = now - session.arrived_at});
}

void SessionsCore::Refuse(const SessionRequest& request, const absl::Status& status) {
  ++stats_.refused;
  actions_.end.push_back({.request = request.request,
                          .key = std::nullopt,
                          .status = status,
                          .result = RunResult(),
                          .ttft = absl::ZeroDuration(),
                          .total = absl::ZeroDuration()});
}

void SessionsCore::Count(SessionOutcome outcome) {
  switch (outcome) {
    case SessionOutcome::kCompleted:
      ++stats_.completed;
      break;
    case SessionOutcome::kCancelled:
      ++stats_.cancelled;
      break;
    case SessionOutcome::kExpired:
      ++stats_.expired;
      break;
    case SessionOutcome::kFailed:
    case SessionOutcome::kFenced:
      ++stats_.failed;
      break;
  }
}

void SessionsCore::Retire(RequestId request, SessionOutcome outcome) {
  Count(outcome);
  auto found = sessions_.find(request);
  if (found->second.key) attempts_.erase(*found->second.key);
  sessions_.erase(found);
}

void SessionsCore::TickSession(Session& session, Instant now) {
  if (!session.ending) TickRunning(session, now);
  if (!session.ending) return;
  if (!session.end_sent && now >= session.end_by) {
    SendEnd(session,
            !session.ending->status.ok()
                ? session.ending->status
                : Complete(session, MakeFailure(FailureKind::kUncertain,
                                                "the answer is complete, but its record could "
                                                "not be written in time")),
            now);
  }
  if (session.key && !session.finish_sent && now >= session.finish_at) SendFinish(session);
}

void SessionsCore::TickRunning(Session& session, Instant now) {
  if (session.phase == Phase::kClassifying && now >= session.phase_until) {
    FailAttempt(session, session.suspect, now);
  } else if (now >= session.deadline) {
    std::string doing = absl::StrCat("after ", session.delivered.size(), " tokens");
    if (session.phase == Phase::kGranting) doing = "waiting for the store";
    if (session.phase == Phase::kOpening) doing = "opening the stages";
    FailAttempt(session,
                Complete(session, MakeFailure(FailureKind::kDeadlineExceeded,
                                              absl::StrCat("the deadline of ",
                                                           Seconds(session.request.budget),
                                                           " passed ", doing))),
                now);
  } else if (session.phase == Phase::kOpening && now >= session.phase_until) {
    const auto& opened = session.opened;
    const auto silent = std::find(opened.begin(), opened.end(), false) - opened.begin();
    FailAttempt(session,
                Blame(session, session.request.route.stages[static_cast<size_t>(silent)],
                      FailureKind::kHeartbeatLost,
                      absl::StrCat("no answer to open for ", Seconds(options_.open_timeout))),
                now);
  }
}

Instant SessionsCore::WakeOf(const Session& session) const {
  Instant wake = Instant::InfiniteFuture();
  if (session.ending) {
    if (!session.end_sent) wake = session.end_by;
    if (session.key && !session.finish_sent) wake = std::min(wake, session.finish_at);
    return wake;
  }
  wake = session.deadline;
  if (session.phase == Phase::kOpening || session.phase == Phase::kClassifying) {
    wake = std::min(wake, session.phase_until);
  }
  return wake;
}

absl::Status SessionsCore::Blame(const Session& session, const RouteStage& stage, FailureKind kind,
                                 const std::string& reason) {
  FailureDetail detail{.kind = kind, .node = stage.node, .layers = stage.layers};
  return Complete(session, MakeFailure(detail, absl::StrCat(StageText(stage), ": ", reason)));
}

absl::Status SessionsCore::Complete(const Session& session, const absl::Status& status) {
  FailureDetail detail = FailureDetailOf(status);
  if (detail.kind == FailureKind::kNone) return status;
  if (session.key) {
    detail.session = session.key->session;
    detail.epoch = session.key->epoch;
  }
  for (const RouteStage& stage : session.request.route.stages) {
    if (stage.node == detail.node && !detail.layers) detail.layers = stage.layers;
  }
  return WithFailureDetail(status, detail);
}

}  // namespace shardline
