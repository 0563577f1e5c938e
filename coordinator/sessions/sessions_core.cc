#include "coordinator/sessions/sessions_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline {

SessionsCore::SessionsCore(const SessionsOptions& options)
    : options_(options),
      queue_(options.admission),
      fences_(&actions_, &stats_),
      restarts_(options.restarts) {}

void SessionsCore::OnGenerate(const SessionRequest& request, Instant now) {
  SL_CHECK(!sessions_.contains(request.request), "request ", request.request.value());
  ++stats_.started;
  if (request.prompt_tokens == 0 || request.new_tokens_max == 0) {
    Refuse(request, MakeFailure(FailureKind::kInvalidRequest,
                                "a request needs at least one prompt token and one new token"));
    return;
  }
  if (request.tokens_held.size() > request.new_tokens_max) {
    Refuse(request, MakeFailure(FailureKind::kInvalidRequest,
                                absl::StrCat("reattach: ", request.tokens_held.size(),
                                             " tokens are held of ", request.new_tokens_max)));
    return;
  }
  if (SessionCore* running = Running(request.identity); running != nullptr && !shut_down_) {
    Attach(request, *running, now);
    return;
  }
  if (const absl::Status refusal = WhyNoMore(now); !refusal.ok()) {
    Refuse(request, refusal);
    return;
  }
  if (request.budget <= absl::ZeroDuration()) {
    Refuse(request, MakeFailure(FailureKind::kDeadlineExceeded, "no time left on arrival"));
    return;
  }
  const SessionShared shared{.options = &options_,
                             .actions = &actions_,
                             .stats = &stats_,
                             .queue = &queue_,
                             .fences = &fences_,
                             .restarts = &restarts_,
                             .open_seq = &open_seq_};
  SessionCore& session =
      *sessions_.emplace(request.request, std::make_unique<SessionCore>(shared, request, now))
           .first->second;
  restarts_.OnSessionStarted();
  queue_.OnSession();
  by_client_[request.request] = request.request;
  const SessionIdentity& identity = request.identity;
  if (!identity.key.empty()) by_key_[{identity.tenant, identity.key}] = request.request;
  if (identity.session) by_session_[*identity.session] = request.request;
  session.Start(now);
  Settle(request.request);
  GiveTurns(now);
}

absl::Status SessionsCore::WhyNoMore(Instant now) const {
  const FailureDetail overloaded{.kind = FailureKind::kOverloaded,
                                 .retry_after = queue_.RetryAfter(now)};
  if (shut_down_) return MakeFailure(overloaded, "the coordinator is shutting down");
  const AdmissionOptions& limits = options_.admission;
  const auto running = static_cast<int>(sessions_.size()) - queue_.waiting();
  if (running < limits.sessions_max || queue_.waiting() < limits.waiting_max) {
    return absl::OkStatus();
  }
  return MakeFailure(overloaded,
                     absl::StrCat("all ", limits.sessions_max, " sessions are taken, and ",
                                  queue_.waiting(), " requests wait"));
}

void SessionsCore::OnRoute(RequestId request, const absl::StatusOr<Route>& route, Instant now) {
  SessionCore* session = Find(request);
  if (session == nullptr) return;
  session->OnRoute(route, now);
  Settle(request);
  GiveTurns(now);
}

void SessionsCore::OnRoutesChanged(Instant now) {
  queue_.OnAllFreed();
  ForEach([now](SessionCore& session) { session.OnRoutesChanged(now); });
  GiveTurns(now);
}

void SessionsCore::OnGranted(RequestId request, const absl::StatusOr<Admitted>& admitted,
                             Instant now) {
  SessionCore* session = Find(request);
  if (session == nullptr || !session->waits_for_grant()) return;
  const bool runs_already = admitted.ok() && !admitted->granted && !admitted->outcome;
  if (!runs_already) {
    session->OnGranted(admitted, now);
    Settle(request);
    GiveTurns(now);
    return;
  }
  // It is known by another name than the one it was found under here.
  const auto running = by_session_.find(admitted->key.session);
  if (running != by_session_.end() && running->second != request && session->client()) {
    const SessionRequest asked = session->request();
    Forget(request);
    Attach(asked, *sessions_.at(running->second), now);
    GiveTurns(now);
    return;
  }
  session->OnGranted(MakeFailure(FailureDetail{.kind = FailureKind::kOverloaded,
                                               .session = admitted->key.session,
                                               .retry_after = options_.retry_after},
                                 "the session is just ending"),
                     now);
  Settle(request);
  GiveTurns(now);
}

void SessionsCore::OnOpenReply(const AttemptKey& key, size_t stage,
                               const absl::StatusOr<OpenResult>& reply, Instant now) {
  SessionCore* session = Current(key);
  if (session == nullptr) return;
  session->OnOpenReply(stage, reply, now);
  Settle(session->request().request);
  GiveTurns(now);
}

void SessionsCore::OnToken(const AttemptKey& key, uint32_t index, int32_t token, Instant now) {
  SessionCore* session = Current(key);
  if (session == nullptr) {
    ++stats_.tokens_dropped;
    return;
  }
  session->OnToken(index, token, now);
  Settle(session->request().request);
  GiveTurns(now);
}

void SessionsCore::OnRunEnd(const AttemptKey& key, const RunResult& result, Instant now) {
  SessionCore* session = Current(key);
  if (session == nullptr) return;
  session->OnRunEnd(result, now);
  Settle(session->request().request);
  GiveTurns(now);
}

void SessionsCore::OnRunFailed(const AttemptKey& key, const absl::Status& status, Instant now) {
  SessionCore* session = Current(key);
  if (session == nullptr) return;
  session->OnRunFailed(status, now);
  Settle(session->request().request);
  GiveTurns(now);
}

void SessionsCore::OnFenceReply(const AttemptKey& key, size_t stage,
                                const absl::StatusOr<FenceResult>& result, Instant now) {
  const std::string freed = fences_.OnReply(key, stage, result, now);
  if (freed.empty()) return;
  queue_.OnFreed(freed);
  GiveTurns(now);
}

void SessionsCore::OnFinished(const AttemptKey& key, const absl::StatusOr<SessionOutcome>& stored,
                              Instant now) {
  SessionCore* session = Current(key);
  if (session == nullptr) return;
  session->OnFinished(stored, now);
  Settle(session->request().request);
  GiveTurns(now);
}

void SessionsCore::OnCancel(RequestId client, Instant now) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  const RequestId request = found->second;
  sessions_.at(request)->OnCancel("the client gave the request up", now);
  Settle(request);
  GiveTurns(now);
}

bool SessionsCore::OnCancelSession(SessionId session, const std::string& reason, Instant now) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return false;
  const RequestId request = found->second;
  sessions_.at(request)->OnCancel(
      absl::StrCat("an operator cancelled it", reason.empty() ? "" : ": ", reason), now);
  Settle(request);
  GiveTurns(now);
  return true;
}

void SessionsCore::OnCancelModel(const std::string& model, Instant now) {
  ForEach([&](SessionCore& session) {
    if (session.model() == model) session.OnCancel("the model was taken out of service", now);
  });
  GiveTurns(now);
}

void SessionsCore::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                              const std::string& reason, Instant now) {
  ForEach([&](SessionCore& session) { session.OnNodeLost(node, incarnation, kind, reason, now); });
  GiveTurns(now);
}

void SessionsCore::OnNodeReady(const NodeId& node, Incarnation incarnation, Instant now) {
  fences_.OnNodeReady({node, incarnation}, now);
}

void SessionsCore::OnNodeDrained(const NodeId& node, const std::string& reason, Instant now) {
  ForEach([&](SessionCore& session) { session.OnNodeDrained(node, reason, now); });
  GiveTurns(now);
}

void SessionsCore::OnShutdown(Instant now) {
  shut_down_ = true;
  ForEach(
      [now](SessionCore& session) { session.OnCancel("the coordinator is shutting down", now); });
}

void SessionsCore::OnTick(Instant now) {
  ForEach([now](SessionCore& session) { session.OnTick(now); });
  queue_.OnTick(now);
  GiveTurns(now);
}

// Lists all, which are empty once they are moved from.
SessionsActions SessionsCore::TakeActions() { return std::move(actions_); }

Instant SessionsCore::NextWake() const {
  Instant wake = queue_.NextWake();
  for (const auto& [request, session] : sessions_) wake = std::min(wake, session->NextWake());
  return wake;
}

LiveAttempts SessionsCore::LiveOn(const NodeId& node, Incarnation incarnation) const {
  LiveAttempts live{.as_of = open_seq_};
  for (const auto& [request, session] : sessions_) {
    if (session->LivesOn(node, incarnation)) live.attempts.push_back(*session->key());
  }
  return live;
}

std::vector<SessionSummary> SessionsCore::List(Instant now) const {
  std::vector<SessionSummary> list;
  list.reserve(sessions_.size());
  for (const auto& [request, session] : sessions_) list.push_back(session->Summary(now));
  return list;
}

int SessionsCore::running_count() const {
  return static_cast<int>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->client().has_value();
  }));
}

int SessionsCore::CountThrough(const NodeId& node) const {
  return static_cast<int>(std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second->RunsThrough(node);
  }));
}

SessionCore* SessionsCore::Current(const AttemptKey& key) {
  const auto found = attempts_.find(key);
  if (found == attempts_.end()) return nullptr;
  SessionCore* session = Find(found->second);
  return session->key() == key ? session : nullptr;
}

SessionCore* SessionsCore::Find(RequestId request) {
  const auto found = sessions_.find(request);
  return found == sessions_.end() ? nullptr : found->second.get();
}

SessionCore* SessionsCore::Running(const SessionIdentity& identity) {
  if (identity.session) {
    const auto found = by_session_.find(*identity.session);
    if (found != by_session_.end()) return Find(found->second);
  }
  if (identity.key.empty()) return nullptr;
  const auto found = by_key_.find({identity.tenant, identity.key});
  return found == by_key_.end() ? nullptr : Find(found->second);
}

void SessionsCore::Attach(const SessionRequest& request, SessionCore& session, Instant now) {
  const SessionIdentity& theirs = session.request().identity;
  if (request.identity.digest != theirs.digest || request.identity.tenant != theirs.tenant) {
    Refuse(request,
           MakeFailure(FailureKind::kKeyConflict, "the key or session belongs to another request"));
    return;
  }
  const RequestId before = session.last_client();
  const absl::Status attached = session.Attach(request.request, request.tokens_held, now);
  if (!attached.ok()) {
    Refuse(request, attached);
    return;
  }
  ++stats_.attached;
  actions_.forget.push_back({.request = request.request});
  by_client_.erase(before);
  by_client_[request.request] = session.request().request;
}

void SessionsCore::Settle(RequestId request) {
  const auto found = sessions_.find(request);
  if (found == sessions_.end()) return;
  const SessionCore& session = *found->second;
  if (session.over()) {
    Forget(request);
    actions_.forget.push_back({.request = request});
    return;
  }
  if (!session.key()) return;
  const AttemptKey key = *session.key();
  // Of a session only the last attempt is listened to.
  if (key.epoch.value() > 1) attempts_.erase({key.session, Epoch(key.epoch.value() - 1)});
  attempts_[key] = request;
  by_session_[key.session] = request;
}

void SessionsCore::GiveTurns(Instant now) {
  while (const std::optional<RequestId> request = queue_.NextTurn(now)) {
    sessions_.at(*request)->OnTurn(now);
    Settle(*request);
  }
}

void SessionsCore::Forget(RequestId request) {
  const auto found = sessions_.find(request);
  const SessionCore& session = *found->second;
  const SessionIdentity& identity = session.request().identity;
  const auto erase = [request](auto& index, const auto& key) {
    const auto entry = index.find(key);
    if (entry != index.end() && entry->second == request) index.erase(entry);
  };
  erase(by_key_, ClientKey{identity.tenant, identity.key});
  if (identity.session) erase(by_session_, *identity.session);
  if (session.key()) {
    erase(by_session_, session.key()->session);
    erase(attempts_, *session.key());
  }
  erase(by_client_, session.last_client());
  queue_.Leave(request);
  queue_.OnSessionOver();
  sessions_.erase(found);
}

void SessionsCore::Refuse(const SessionRequest& request, const absl::Status& status) {
  ++stats_.refused;
  actions_.end.push_back({.request = request.request,
                          .client = request.request,
                          .key = std::nullopt,
                          .status = status,
                          .result = RunResult(),
                          .ttft = absl::ZeroDuration(),
                          .total = absl::ZeroDuration()});
  actions_.forget.push_back({.request = request.request});
}

template <typename Event>
void SessionsCore::ForEach(Event event) {
  std::vector<RequestId> requests;
  requests.reserve(sessions_.size());
  for (const auto& [request, session] : sessions_) requests.push_back(request);
  for (const RequestId request : requests) {
    event(*sessions_.at(request));
    Settle(request);
  }
}

}  // namespace shardline
