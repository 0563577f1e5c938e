#include "coordinator/session_driver.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/transport/node_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(5);
constexpr absl::Duration kFenceTimeout = absl::Seconds(2);
constexpr absl::Duration kRunGrace = absl::Seconds(1);  // Past the budget, for the head's own end.

// Clients are numbered from 1 by their service; probes from here.
constexpr uint64_t kFirstProbe = uint64_t{1} << 63;

AttemptState ToAttemptState(SessionOutcome outcome) {
  switch (outcome) {
    case SessionOutcome::kCompleted:
      return AttemptState::kCompleted;
    case SessionOutcome::kFailed:
      return AttemptState::kFailed;
    case SessionOutcome::kCancelled:
      return AttemptState::kCancelled;
    case SessionOutcome::kExpired:
      return AttemptState::kExpired;
    case SessionOutcome::kFenced:
      return AttemptState::kFenced;
  }
  return AttemptState::kFailed;
}

SessionOutcome ToOutcome(AttemptState state) {
  switch (state) {
    case AttemptState::kCompleted:
      return SessionOutcome::kCompleted;
    case AttemptState::kCancelled:
      return SessionOutcome::kCancelled;
    case AttemptState::kExpired:
      return SessionOutcome::kExpired;
    case AttemptState::kFenced:
      return SessionOutcome::kFenced;
    case AttemptState::kFailed:
    case AttemptState::kUnverified:
    case AttemptState::kOpen:
      break;
  }
  return SessionOutcome::kFailed;
}

}  // namespace

std::string_view SessionOutcomeName(SessionOutcome outcome) {
  return AttemptStateName(ToAttemptState(outcome));
}

SessionDriver::SessionDriver(const World& world, const SessionsOptions& options)
    : world_(world), core_(options) {}

void SessionDriver::Generate(RequestId request, PreparedRequest prepared, Route route) {
  Start(request, {.prepared = std::move(prepared),
                  .route = std::move(route),
                  .hold = {},
                  .arrived_at = {},
                  .key = {},
                  .probe_done = nullptr});
}

void SessionDriver::Probe(PreparedRequest prepared, Route route,
                          absl::AnyInvocable<void(absl::Status)> done) {
  Start(RequestId(kFirstProbe + probes_++), {.prepared = std::move(prepared),
                                             .route = std::move(route),
                                             .hold = {},
                                             .arrived_at = {},
                                             .key = {},
                                             .probe_done = std::move(done)});
}

void SessionDriver::Start(RequestId request, Payload payload) {
  const SessionRequest session{
      .request = request,
      .route = payload.route,
      .prompt_tokens = static_cast<uint32_t>(payload.prepared.prompt.size()),
      .new_tokens_max = payload.prepared.new_tokens_max,
      .budget = payload.prepared.budget};
  payload.arrived_at = world_.clock->Now();
  payloads_.emplace(request, std::move(payload));
  core_.OnGenerate(session, world_.clock->Now());
}

std::vector<SessionSummary> SessionDriver::List() const {
  std::vector<SessionSummary> list;
  for (const auto& [request, payload] : payloads_) {
    const absl::Duration age = world_.clock->Now() - payload.arrived_at;
    const bool runs = payload.key.has_value() && runs_.contains(*payload.key);
    list.push_back({.key = payload.key,
                    .model = payload.route.model,
                    .phase = runs                      ? "running"
                             : payload.key.has_value() ? "opening"
                                                       : "granting",
                    .prompt_tokens = static_cast<uint32_t>(payload.prepared.prompt.size()),
                    .tokens = payload.tokens,
                    .attempts = payload.key.has_value() ? 1U : 0U,
                    .age = age,
                    .budget = payload.prepared.budget - age,
                    .route = payload.route.stages});
  }
  std::sort(list.begin(), list.end(),
            [](const SessionSummary& a, const SessionSummary& b) { return a.key < b.key; });
  return list;
}

void SessionDriver::CancelSession(SessionId session, const std::string& reason,
                                  absl::AnyInvocable<void(const absl::StatusOr<Standing>&)> done) {
  for (const auto& [request, payload] : payloads_) {
    if (!payload.key.has_value() || payload.key->session != session) continue;
    LogInfo("session cancelled", {{"session", session}, {"reason", reason}});
    cancels_[*payload.key].push_back(std::move(done));
    core_.OnCancel(request, world_.clock->Now());
    return;
  }
  // It is over: its last record says how.
  world_.store->Run(
      [session](Store& store) -> absl::StatusOr<Standing> {
        SL_ASSIGN_OR_RETURN(const std::vector<LedgerEntry> records,
                            store.ListRecords({.session = session, .state = {}}));
        if (records.empty()) {
          return absl::NotFoundError(absl::StrCat("no session ", session.value()));
        }
        return Standing{records.back().key, ToOutcome(records.back().record.state)};
      },
      [done = std::move(done)](const absl::StatusOr<Standing>& standing) mutable {
        done(standing);
      });
}

void SessionDriver::OnClientGone(RequestId request) {
  core_.OnCancel(request, world_.clock->Now());
}

void SessionDriver::CancelModel(const std::string& model) {
  for (const auto& [request, payload] : payloads_) {
    if (payload.route.model == model) core_.OnCancel(request, world_.clock->Now());
  }
}

void SessionDriver::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                               const std::string& reason) {
  core_.OnNodeLost(node, incarnation, kind, reason, world_.clock->Now());
}

void SessionDriver::OnShutdown() { core_.OnShutdown(world_.clock->Now()); }

void SessionDriver::OnTick() { core_.OnTick(world_.clock->Now()); }

bool SessionDriver::CarryOut() {
  const SessionsActions actions = core_.TakeActions();
  if (actions.empty()) return false;
  for (const auto& action : actions.grant) Grant(action);
  for (const auto& action : actions.fence) Fence(action);
  for (const auto& action : actions.cancel_run) {
    auto run = runs_.find(action.key);
    if (run != runs_.end() && run->second.call != nullptr) run->second.call->Cancel();
  }
  for (const auto& action : actions.open) Open(action);
  for (const auto& action : actions.started) SendStarted(action);
  for (const auto& action : actions.run) StartRun(action);
  for (const auto& action : actions.deliver) Deliver(action);
  for (const auto& action : actions.finish) Finish(action);
  for (const auto& action : actions.end) End(action);
  return true;
}

void SessionDriver::Grant(const SessionsActions::Grant& action) {
  const AttemptGrant grant{.session = action.session.value_or(SessionId()),
                           .plan = action.plan,
                           .route = action.route,
                           .budget = action.budget};
  world_.store->Run(
      [grant, create = !action.session.has_value(),
       term = world_.term](Store& store) -> absl::StatusOr<AttemptKey> {
        if (create) return store.CreateAndGrant(term, grant);
        absl::StatusOr<Epoch> epoch = store.GrantEpoch(term, grant);
        if (!epoch.ok()) return epoch.status();
        return AttemptKey{grant.session, *epoch};
      },
      [this, request = action.request](const absl::StatusOr<AttemptKey>& key) {
        auto payload = payloads_.find(request);
        if (key.ok() && payload != payloads_.end()) payload->second.key = *key;
        core_.OnGranted(request, key, world_.clock->Now());
      });
}

void SessionDriver::Fence(const SessionsActions::Fence& action) {
  world_.nodes->Fence(
      action.to.node, FenceRequestFor(action, world_.term), kFenceTimeout,
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
  auto payload = payloads_.find(action.request);
  SL_CHECK(payload != payloads_.end());
  world_.nodes->Open(
      action.to.node, OpenRequestFor(payload->second.route, action, world_.term),
      std::min(action.budget, kOpenTimeout),
      [this, key = action.key, stage = action.stage](absl::StatusOr<v1::OpenReply> reply) {
        world_.loop->Post([this, key, stage, status = reply.status()] {
          core_.OnOpenReply(key, stage, status, world_.clock->Now());
        });
      });
}

void SessionDriver::SendStarted(const SessionsActions::Started& action) {
  const Payload& payload = payloads_.at(action.request);
  if (payload.probe_done) return;
  v1::GenerateEvent event;
  v1::GenerateStarted& started = *event.mutable_started();
  started.set_session(action.key.session.value());
  started.set_epoch(action.key.epoch.value());
  started.set_plan_epoch(payload.route.plan.value());
  started.set_model(payload.route.model);
  started.set_prompt_tokens(static_cast<uint32_t>(payload.prepared.prompt.size()));
  for (const RouteStage& stage : payload.route.stages) *started.add_route() = ToProto(stage);
  Send(action.request, std::move(event));
}

void SessionDriver::StartRun(const SessionsActions::Run& action) {
  const Payload& payload = payloads_.at(action.request);
  v1::RunAttemptRequest request = RunRequestFor(payload.prepared, action.delivered);
  request.set_session(action.key.session.value());
  request.set_epoch(action.key.epoch.value());
  request.set_term(world_.term.value());
  request.set_incarnation(action.head.incarnation.value());
  request.set_budget_ms(absl::ToInt64Milliseconds(action.budget));
  // Entered first: a head that is gone is answered for at once.
  runs_.emplace(action.key, Run());
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
  } else if (event.has_end()) {
    run->second.ended = true;
    core_.OnRunEnd(key, FromProto(event.end()), now);
  }
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
  Payload& payload = payloads_.at(action.request);
  ++payload.tokens;
  if (payload.probe_done || token_ == nullptr) return;
  v1::GenerateEvent event;
  *event.mutable_token()->mutable_token() = *token_;
  const Tokenizer& tokenizer = *payload.prepared.file->tokenizer;
  const bool is_text = action.token >= 0 && action.token < tokenizer.vocab_size() &&
                       !tokenizer.IsControl(action.token);
  if (is_text) {
    event.mutable_token()->set_text(payload.hold.Push(tokenizer.TokenBytes(action.token)));
  }
  Send(action.request, std::move(event));
}

void SessionDriver::Send(RequestId request, v1::GenerateEvent event) {
  if (world_.clients->Send(request, std::move(event))) return;
  // Gone, or it does not read: either way nobody waits for the rest. The end comes by OnCancel.
  world_.clients->EndNow(
      request, MakeFailure(FailureKind::kOverloaded,
                           "the client reads more slowly than the model answers, and its queue is "
                           "full"));
  core_.OnCancel(request, world_.clock->Now());
}

void SessionDriver::Finish(const SessionsActions::Finish& action) {
  const AttemptRecord record{.state = ToAttemptState(action.outcome),
                             .prompt_tokens = action.prompt_tokens,
                             .tokens = action.tokens,
                             .work_tokens = uint64_t{action.prompt_tokens} + action.tokens,
                             .kind = action.kind,
                             .detail = action.detail};
  world_.store->Run([record, key = action.key, term = world_.term](
                        Store& store) { return store.FinishAttempt(term, key, record, {}); },
                    [this, key = action.key](const absl::StatusOr<AttemptRecord>& stored) {
                      const Instant now = world_.clock->Now();
                      auto waiting = cancels_.find(key);
                      if (stored.ok() && waiting != cancels_.end()) {
                        for (auto& done : waiting->second) {
                          done(Standing{key, ToOutcome(stored->state)});
                        }
                        cancels_.erase(waiting);
                      }
                      if (stored.ok()) {
                        core_.OnFinished(key, ToOutcome(stored->state), now);
                      } else {
                        core_.OnFinished(key, stored.status(), now);
                      }
                    });
}

void SessionDriver::End(const SessionsActions::End& action) {
  auto found = payloads_.find(action.request);
  SL_CHECK(found != payloads_.end());
  Payload payload = std::move(found->second);
  payloads_.erase(found);
  const SessionId session = action.key.has_value() ? action.key->session : SessionId();
  if (action.status.ok()) {
    LogDebug("session completed", {{"session", session},
                                   {"tokens", static_cast<uint64_t>(action.result.tokens)},
                                   {"ttft", action.ttft},
                                   {"total", action.total}});
  } else {
    LogInfo("session ended without an answer",
            {{"session", session}, {"model", payload.route.model}, {"status", action.status}});
  }
  if (payload.probe_done) {
    payload.probe_done(action.status);
    return;
  }
  if (action.status.ok()) {
    v1::GenerateEvent event;
    v1::GenerateEnd& end = *event.mutable_end();
    end.set_reason(ToProto(action.result.reason));
    end.set_text(payload.hold.Flush());
    end.set_prompt_tokens(static_cast<uint32_t>(payload.prepared.prompt.size()));
    end.set_generated_tokens(action.result.tokens);
    end.set_ttft_us(absl::ToInt64Microseconds(action.ttft));
    end.set_total_us(absl::ToInt64Microseconds(action.total));
    *end.mutable_timings() = ToProto(action.result.timings);
    if (!world_.clients->Send(action.request, std::move(event))) {
      world_.clients->EndNow(action.request,
                             MakeFailure(FailureKind::kOverloaded,
                                         "the client's queue is full at the end of its answer"));
      return;
    }
  }
  world_.clients->End(action.request, action.status);
}

}  // namespace shardline
