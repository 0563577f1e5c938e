#include "coordinator/session_driver.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/version.h"
#include "coordinator/session_records.h"
#include "coordinator/transport/node_conversion.h"

namespace shardline {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(2);
constexpr absl::Duration kFenceTimeout = absl::Seconds(2);
constexpr absl::Duration kRunGrace = absl::Seconds(1);  // Past the budget, for the head's own end.
constexpr uint64_t kRecordsMax = 1000;  // Of one session: far more than it can have attempts.

// Callers number theirs from 1; those that do not are numbered from here.
constexpr uint64_t kFirstOwnCall = uint64_t{1} << 63;

}  // namespace

SessionDriver::SessionDriver(World world, const SessionsOptions& options)
    : world_(std::move(world)), core_(options) {}

RequestId SessionDriver::Run(SessionSpec spec, Route route,
                             std::unique_ptr<SessionObserver> observer) {
  return Start(std::move(spec), std::move(route), std::move(observer));
}

RequestId SessionDriver::RunWithFailover(SessionSpec spec,
                                         std::unique_ptr<SessionObserver> observer) {
  return Start(std::move(spec), std::nullopt, std::move(observer));
}

RequestId SessionDriver::Start(SessionSpec spec, std::optional<Route> route,
                               std::unique_ptr<SessionObserver> observer) {
  const RequestId call = spec.call.value_or(RequestId(kFirstOwnCall + own_calls_++));
  const PreparedRequest& prepared = spec.prepared;
  const SessionRequest request{.request = call,
                               .model = spec.model,
                               .model_id = prepared.file == nullptr ? ModelId() : prepared.file->id,
                               .route = std::move(route),
                               .prompt_tokens = static_cast<uint32_t>(prepared.prompt.size()),
                               .new_tokens_max = prepared.new_tokens_max,
                               .budget = prepared.budget,
                               .identity = spec.identity,
                               .tokens_held = std::move(spec.tokens_held),
                               .affinity = world_.prefix_cache ? AffinityOf(prepared) : 0};
  payloads_.emplace(call, Payload{.prepared = std::move(spec.prepared),
                                  .model = std::move(spec.model),
                                  .client = call,
                                  .session = spec.identity.session});
  observers_.emplace(call, std::move(observer));
  core_.OnGenerate(request, world_.clock->Now());
  return call;
}

std::optional<SessionSummary> SessionDriver::Observe(SessionId session) const {
  for (SessionSummary& summary : List()) {
    if (summary.key && summary.key->session == session) return std::move(summary);
  }
  return std::nullopt;
}

std::vector<SessionSummary> SessionDriver::List() const { return core_.List(world_.clock->Now()); }

void SessionDriver::Cancel(RequestId call) { core_.OnCancel(call, world_.clock->Now()); }

void SessionDriver::CancelSession(SessionId session, const std::string& reason, Waiter done) {
  if (core_.OnCancelSession(session, reason, world_.clock->Now())) {
    waiters_[session].push_back(std::move(done));
    return;
  }
  // It is over, or never was: the ledger knows.
  world_.store->Run(
      [session](Store& store) {
        return store.ListRecords(
            {.session = session, .state = std::nullopt, .after = 0, .limit = kRecordsMax});
      },
      [session,
       done = std::move(done)](const absl::StatusOr<std::vector<LedgerEntry>>& records) mutable {
        if (!records.ok()) return done(records.status());
        if (records->empty()) {
          return done(absl::NotFoundError(absl::StrCat("there is no session ", session.value())));
        }
        const LedgerEntry& last = records->back();
        done(Standing{.key = last.key, .outcome = ToOutcome(last.record.state)});
      });
}

void SessionDriver::CancelModel(const std::string& model) {
  core_.OnCancelModel(model, world_.clock->Now());
}

void SessionDriver::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                               const std::string& reason) {
  core_.OnNodeLost(node, incarnation, kind, reason, world_.clock->Now());
}

void SessionDriver::OnNodeReady(const NodeId& node, Incarnation incarnation) {
  core_.OnNodeReady(node, incarnation, world_.clock->Now());
}

void SessionDriver::OnRoutesChanged() { core_.OnRoutesChanged(world_.clock->Now()); }

void SessionDriver::OnNodeDrained(const NodeId& node, const std::string& reason) {
  core_.OnNodeDrained(node, reason, world_.clock->Now());
}

void SessionDriver::OnShutdown() { core_.OnShutdown(world_.clock->Now()); }

void SessionDriver::OnTick() { core_.OnTick(world_.clock->Now()); }

bool SessionDriver::CarryOut() {
  const SessionsActions actions = core_.TakeActions();
  if (actions.empty()) return false;
  for (const RouteSuspects::Link& link : actions.suspect_links) {
    if (world_.suspect_link) world_.suspect_link(link.from, link.to);
  }
  for (const auto& action : actions.find_route) FindRoute(action);
  for (const auto& action : actions.grant) Grant(action);
  for (const auto& action : actions.fence) Fence(action);
  for (const auto& action : actions.cancel_run) {
    auto run = runs_.find(action.key);
    if (run != runs_.end() && run->second.call != nullptr) run->second.call->Cancel();
  }
  for (const auto& action : actions.open) Open(action);
  for (const auto& action : actions.rebind) Rebind(action);
  for (const auto& action : actions.started) Started(action);
  for (const auto& action : actions.restarted) Restarted(action);
  for (const auto& action : actions.run) StartRun(action);
  for (const auto& action : actions.deliver) Deliver(action);
  for (const auto& action : actions.finish) Finish(action);
  for (const auto& action : actions.end) End(action);
  for (const auto& action : actions.forget) Forget(action);
  return true;
}

void SessionDriver::FindRoute(const SessionsActions::FindRoute& action) {
  core_.OnRoute(action.request, world_.find_route(action.model, action.avoid, action.affinity),
                world_.clock->Now());
}

void SessionDriver::Grant(const SessionsActions::Grant& action) {
  world_.store->Run(
      [grant = ToGrant(action), again = action.session.has_value(),
       identity = ToRequestIdentity(action.identity),
       term = world_.term](Store& store) -> absl::StatusOr<Admitted> {
        if (!again) {
          absl::StatusOr<Admission> admission = store.Admit(term, grant, identity);
          if (!admission.ok()) return admission.status();
          return FromAdmission(*admission);
        }
        absl::StatusOr<Epoch> epoch = store.GrantEpoch(term, grant);
        if (!epoch.ok()) return epoch.status();
        return Admitted{.key = {grant.session, *epoch}, .granted = true, .known = true};
      },
      [this, request = action.request](const absl::StatusOr<Admitted>& admitted) {
        auto payload = payloads_.find(request);
        if (admitted.ok() && payload != payloads_.end()) {
          payload->second.session = admitted->key.session;
        }
        core_.OnGranted(request, admitted, world_.clock->Now());
        if (admitted.ok() && admitted->outcome) {
          AnswerWaiters(admitted->key.session,
                        Standing{.key = admitted->key, .outcome = admitted->outcome->outcome});
        }
      });
}

void SessionDriver::Fence(const SessionsActions::Fence& action) {
  v1::FenceRequest request = FenceRequestFor(action, world_.term);
  request.set_incarnation(action.to.incarnation.value());
  world_.nodes->Fence(
      action.to.node, std::move(request), kFenceTimeout,
      [this, key = action.key, stage = action.stage](absl::StatusOr<v1::FenceReply> reply) {
        absl::StatusOr<FenceResult> result = FenceResult();
        if (!reply.ok()) {
          result = reply.status();
        } else {
          result = FenceResult{.pages_released = reply->pages_released(),
                               .buffers_released = reply->buffers_released(),
                               .pages_pinned = reply->pages_pinned()};
        }
        world_.loop->Post([this, key, stage, result = std::move(result)] {
          core_.OnFenceReply(key, stage, result, world_.clock->Now());
        });
      });
}

void SessionDriver::Open(const SessionsActions::Open& action) {
  v1::OpenRequest request = OpenRequestFor(action.route, action, world_.term);
  request.set_open_seq(action.open_seq);
  NamePrefix(action, request);
  world_.nodes->Open(
      action.to.node, std::move(request), std::min(action.budget, kOpenTimeout),
      [this, key = action.key, stage = action.stage](absl::StatusOr<v1::OpenReply> reply) {
        absl::StatusOr<OpenResult> result = OpenResult();
        if (reply.ok()) {
          result->cached_tokens = reply->cached_tokens();
        } else {
          result = reply.status();
        }
        world_.loop->Post([this, key, stage, result = std::move(result)] {
          core_.OnOpenReply(key, stage, result, world_.clock->Now());
        });
      });
}

// The keys are made once a session, and go on with what was delivered since.
void SessionDriver::NamePrefix(const SessionsActions::Open& action, v1::OpenRequest& request) {
  Payload& payload = payloads_.at(action.request);
  const PreparedRequest& prepared = payload.prepared;
  if (!world_.prefix_cache || prepared.no_prefix_cache) return;
  const PrefixKey root =
      PrefixRoot(action.route.model_id, action.route.numerics_id, prepared.tenant);
  if (root != payload.root) payload.keys.clear();
  payload.root = root;
  const std::vector<int32_t>& prompt = prepared.prompt;
  const auto token_at = [&](size_t i) {
    return i < prompt.size() ? prompt[i] : action.delivered[i - prompt.size()];
  };
  const auto count = static_cast<size_t>(PrefixPagesToFind(
      static_cast<int64_t>(prompt.size() + action.delivered.size()), kPageTokens));
  std::array<int32_t, kPageTokens> page;
  while (payload.keys.size() < count) {
    for (size_t i = 0; i < page.size(); ++i) {
      page[i] = token_at(payload.keys.size() * page.size() + i);
    }
    payload.keys.push_back(PrefixNext(payload.keys.empty() ? root : payload.keys.back(), page));
  }
  request.set_prefix_root(root.ToBytes());
  for (size_t i = 0; i < count; ++i) request.add_prefix_keys(payload.keys[i].ToBytes());
}

void SessionDriver::Rebind(const SessionsActions::Rebind& action) {
  const auto payload = payloads_.find(action.request);
  if (payload != payloads_.end()) payload->second.client = action.to;
  SessionObserver* from = action.from ? ObserverOf(*action.from) : nullptr;
  if (from == nullptr) return;
  from->OnEnd({.status = MakeFailure(FailureKind::kCancelled, "a newer connection took over"),
               .key = std::nullopt,
               .result = {},
               .ttft = absl::ZeroDuration(),
               .total = absl::ZeroDuration()});
  observers_.erase(*action.from);
}

void SessionDriver::Started(const SessionsActions::Started& action) {
  SessionObserver* observer = ObserverOf(action.client);
  if (observer == nullptr) return;
  observer->OnStarted(
      {.key = action.key, .model = payloads_.at(action.request).model, .route = action.route});
}

void SessionDriver::Restarted(const SessionsActions::Restarted& action) {
  LogInfo("session restarted", {{"session", action.to.session},
                                {"epoch", action.to.epoch},
                                {"route", action.route.ToString()},
                                {"status", action.reason}});
  if (world_.restarted) world_.restarted(action.to, action.reason);
  SessionObserver* observer = ObserverOf(action.client);
  if (observer == nullptr) return;
  observer->OnRestarted({.key = action.to, .route = action.route, .reason = action.reason});
}

void SessionDriver::StartRun(const SessionsActions::Run& action) {
  const Payload& payload = payloads_.at(action.request);
  v1::RunAttemptRequest request = RunRequestFor(payload.prepared, action.delivered);
  request.set_cached_tokens(action.cached_tokens);
  request.set_prefix_root(payload.root.ToBytes());
  request.set_session(action.key.session.value());
  request.set_epoch(action.key.epoch.value());
  request.set_term(world_.term.value());
  request.set_incarnation(action.head.incarnation.value());
  request.set_budget_ms(absl::ToInt64Milliseconds(action.budget));
  request.set_rounds_in_flight(static_cast<uint32_t>(action.rounds.in_flight));
  request.set_step_us(absl::ToDoubleMicroseconds(action.rounds.lap_step));
  request.set_row_us(absl::ToDoubleMicroseconds(action.rounds.lap_row));
  // Entered first: a head that is gone is answered for at once.
  runs_.emplace(action.key, HeadRun{.request = action.request});
  std::shared_ptr<RunCall> call = world_.nodes->RunAttempt(
      action.head.node, std::move(request), action.budget + kRunGrace,
      [this, key = action.key](v1::RunAttemptEvent event) {
        world_.loop->Post([this, key, event = std::move(event)] { OnRunEvent(key, event); });
      },
      [this, key = action.key](absl::Status status) {
        world_.loop->Post([this, key, status] { OnRunStreamEnd(key, status); });
      });
  runs_.at(action.key).call = std::move(call);
}

void SessionDriver::OnRunEvent(const AttemptKey& key, const v1::RunAttemptEvent& event) {
  const Instant now = world_.clock->Now();
  auto run = runs_.find(key);
  if (run == runs_.end() || run->second.ended) return;
  if (event.has_token()) {
    token_ = &event.token();
    core_.OnToken(key, event.token().index(), event.token().token(), now);
    CarryOut();
    token_ = nullptr;
  } else if (event.has_progress()) {
    TellProgress(run->second.request, event.progress());
  } else if (event.has_end()) {
    run->second.ended = true;
    core_.OnRunEnd(key, FromProto(event.end()), now);
  }
}

void SessionDriver::TellProgress(RequestId request, const v1::RunProgress& progress) {
  const auto payload = payloads_.find(request);
  if (payload == payloads_.end()) return;
  SessionObserver* observer = ObserverOf(payload->second.client);
  if (observer == nullptr) return;
  observer->OnProgress(
      {.tokens_done = progress.prompt_tokens_done(), .tokens = progress.prompt_tokens()});
}

void SessionDriver::OnRunStreamEnd(const AttemptKey& key, const absl::Status& status) {
  auto run = runs_.find(key);
  if (run == runs_.end()) return;
  const bool ended = run->second.ended;
  runs_.erase(run);
  if (ended) return;
  const absl::Status failure = status.ok() ? MakeFailure(FailureKind::kStreamReset,
                                                         "the head ended its stream without an end")
                                           : status;
  core_.OnRunFailed(key, failure, world_.clock->Now());
}

void SessionDriver::Deliver(const SessionsActions::Deliver& action) {
  SessionObserver* observer = ObserverOf(action.client);
  if (observer == nullptr) return;
  const bool is_new = token_ != nullptr && token_->index() == action.index;
  const bool taken = observer->OnToken(
      {.index = action.index, .token = action.token, .detail = is_new ? token_ : nullptr});
  if (!taken) core_.OnCancel(action.client, world_.clock->Now());
}

void SessionDriver::Finish(const SessionsActions::Finish& action) {
  world_.store->Run(
      [record = ToRecord(action.record), tokens = action.tokens, key = action.key,
       term = world_.term](Store& store) { return store.FinishAttempt(term, key, record, tokens); },
      [this, key = action.key](const absl::StatusOr<AttemptRecord>& stored) {
        const Instant now = world_.clock->Now();
        if (!stored.ok()) {
          core_.OnFinished(key, stored.status(), now);
          return;
        }
        const SessionOutcome outcome = ToOutcome(stored->state);
        core_.OnFinished(key, outcome, now);
        AnswerWaiters(key.session, Standing{.key = key, .outcome = outcome});
      });
}

void SessionDriver::End(const SessionsActions::End& action) {
  const SessionId session = action.key.has_value() ? action.key->session : SessionId();
  if (action.status.ok()) {
    LogDebug("session completed", {{"session", session},
                                   {"tokens", static_cast<uint64_t>(action.result.tokens)},
                                   {"ttft", action.ttft},
                                   {"total", action.total}});
  } else {
    LogInfo("session ended without an answer", {{"session", session}, {"status", action.status}});
  }
  SessionObserver* observer = ObserverOf(action.client);
  if (observer == nullptr) return;
  observer->OnEnd({.status = action.status,
                   .key = action.key,
                   .result = action.result,
                   .ttft = action.ttft,
                   .total = action.total});
  observers_.erase(action.client);
}

void SessionDriver::Forget(const SessionsActions::Forget& action) {
  auto payload = payloads_.find(action.request);
  SL_CHECK(payload != payloads_.end());
  const std::optional<SessionId> session = payload->second.session;
  payloads_.erase(payload);
  // Only another coordinator's word ends a session here without a record of ours.
  if (session && waiters_.contains(*session) && !Observe(*session)) {
    AnswerWaiters(*session, MakeFailure(FailureKind::kStaleEpoch,
                                        "this coordinator has no say in the session any more"));
  }
}

SessionObserver* SessionDriver::ObserverOf(RequestId client) {
  auto found = observers_.find(client);
  return found == observers_.end() ? nullptr : found->second.get();
}

void SessionDriver::AnswerWaiters(SessionId session, const absl::StatusOr<Standing>& standing) {
  auto found = waiters_.find(session);
  if (found == waiters_.end()) return;
  std::vector<Waiter> waiting = std::move(found->second);
  waiters_.erase(found);
  for (Waiter& done : waiting) done(standing);
}

}  // namespace shardline
