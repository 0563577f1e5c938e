// The sessions of a simulated coordinator: what session_driver.cc does.

#include <algorithm>
#include <utility>

#include "tests/sim/checker.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {
namespace {

constexpr SimTime kOpenTimeout = 5 * kSecond;
constexpr SimTime kFenceTimeout = 2 * kSecond;

AttemptState ToState(SessionOutcome outcome) {
  switch (outcome) {
    case SessionOutcome::kCompleted:
      return AttemptState::kCompleted;
    case SessionOutcome::kCancelled:
      return AttemptState::kCancelled;
    case SessionOutcome::kExpired:
      return AttemptState::kExpired;
    case SessionOutcome::kFenced:
      return AttemptState::kFenced;
    case SessionOutcome::kUnverified:
      return AttemptState::kUnverified;
    case SessionOutcome::kFailed:
      break;
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
    case AttemptState::kUnverified:
      return SessionOutcome::kUnverified;
    default:
      return SessionOutcome::kFailed;
  }
}

AttemptRecord ToRecord(const EndRecord& end) {
  return {.state = ToState(end.outcome),
          .prompt_tokens = end.prompt_tokens,
          .tokens = end.tokens,
          .work_tokens = end.work_tokens,
          .digest = end.digest,
          .kind = end.kind,
          .detail = end.detail};
}

EndRecord FromRecord(const AttemptRecord& record) {
  return {.outcome = ToOutcome(record.state),
          .prompt_tokens = static_cast<uint32_t>(record.prompt_tokens),
          .tokens = static_cast<uint32_t>(record.tokens),
          .work_tokens = record.work_tokens,
          .digest = record.digest,
          .kind = record.kind,
          .detail = record.detail};
}

absl::Status Blame(const absl::Status& status, const NodeId& node) {
  if (status.ok() || FailureKindOf(status) != FailureKind::kNone) return status;
  FailureKind kind = FailureKind::kStreamReset;
  if (absl::IsDeadlineExceeded(status)) kind = FailureKind::kDeadlineExceeded;
  return MakeFailure({.kind = kind, .node = node},
                     std::string_view(status.message().data(), status.message().size()));
}

SimTime ToSim(absl::Duration d) { return absl::ToInt64Nanoseconds(d); }

}  // namespace

// Nobody knows what the disk holds: the process ends, and its successor reads it anew.
void SimCoordinator::OnBrokenDisk() {
  disk_->store->SetFault(testing::StoreFault::kNone);
  Kill();
  SimContext& sim = context();
  sim.queue.At(sim.queue.now() + 100 * kMillisecond, nullptr, [this] {
    if (!alive() && cluster_->coordinator() == this) Start();
  });
}

bool SimCoordinator::CarryOutSessions() {
  if (!sessions_->has_actions()) return false;
  const SessionsActions actions = sessions_->TakeActions();
  for (const auto& action : actions.find_route) {
    sessions_->OnRoute(action.request, routes_->RouteAnyway(action.model, action.avoid, Now()),
                       Now());
  }
  for (const auto& action : actions.grant) Grant(action);
  for (const auto& action : actions.fence) Fence(action);
  for (const auto& action : actions.cancel_run) {
    const auto run = runs_.find(action.key);
    if (run == runs_.end()) continue;
    Stream* const stream = run->second;
    // What is on its way may still come before the transport answers for the head.
    After(context().rng.Between(0, 300) * kMicrosecond, [this, key = action.key, stream] {
      cluster_->network.HangUp(stream, 0);
      OnRunEnd(stream, key, MakeFailure(FailureKind::kCancelled, "cancelled"), std::nullopt);
    });
  }
  for (const auto& action : actions.open) Open(action);
  for (const auto& action : actions.rebind) Rebind(action);
  for (const auto& action : actions.started) Tell(action.client, {.started = action.key});
  for (const auto& action : actions.restarted) {
    context().checker->OnRestarted(*this, action);
    context().trace.Add(TraceKind::kRestarted, number(), action.to.session.value(),
                        action.to.epoch.value());
  }
  for (const auto& action : actions.run) StartRun(action);
  for (const auto& action : actions.deliver) {
    Tell(action.client, {.index = action.index, .token = action.token});
  }
  for (const auto& action : actions.finish) Finish(action);
  for (const auto& action : actions.end) End(action);
  for (const auto& action : actions.forget) payloads_.erase(action.request);
  return true;
}

void SimCoordinator::OnGenerate(SimClient* client, Stream* stream, const GenerateWords& words) {
  const RequestId request(++requests_);
  context().trace.Add(TraceKind::kGenerate, number(), request.value());
  callers_[request] = {.client = client, .stream = stream};
  payloads_[request] = {.words = words};
  cluster_->network.OnEnd(stream, 1, [this, request] {
    context().trace.Add(TraceKind::kClientGone, number(), request.value());
    callers_.erase(request);
    sessions_->OnCancel(request, Now());
  });
  sessions_->OnGenerate({.request = request,
                         .prompt_tokens = static_cast<uint32_t>(words.prompt.size()),
                         .new_tokens_max = static_cast<uint32_t>(words.new_tokens_max),
                         .budget = words.budget,
                         .identity = {.tenant = words.tenant,
                                      .key = words.key,
                                      .digest = words.digest,
                                      .session = words.session},
                         .tokens_held = words.tokens_held},
                        Now());
}

void SimCoordinator::StartProbe(const RouteActions::Probe& action) {
  const RequestId request(++requests_);
  payloads_[request] = {.words = {.prompt = {0}, .new_tokens_max = 1, .budget = absl::Seconds(60)},
                        .probe = action.number,
                        .probe_plan = action.plan};
  sessions_->OnGenerate({.request = request,
                         .route = action.route,
                         .prompt_tokens = 1,
                         .new_tokens_max = 1,
                         .budget = absl::Seconds(60)},
                        Now());
}

void SimCoordinator::Rebind(const SessionsActions::Rebind& action) {
  if (!action.from || *action.from == action.to) return;
  Dismiss(*action.from, MakeFailure(FailureKind::kCancelled, "another call listens now"), 0);
}

void SimCoordinator::Grant(const SessionsActions::Grant& action) {
  AttemptGrant grant{.session = action.session.value_or(SessionId()),
                     .plan = action.plan,
                     .route = action.route,
                     .budget = action.budget,
                     .tokens_max = action.tokens_max};
  if (action.previous) grant.previous = ToRecord(*action.previous);
  const RequestIdentity identity{.tenant = action.identity.tenant,
                                 .key = action.identity.key,
                                 .digest = action.identity.digest,
                                 .session = action.identity.session};
  const auto payload = payloads_.find(action.request);
  const bool poisonous = payload != payloads_.end() && payload->second.words.poisonous;
  Store(
      [this, grant, identity, poisonous, deadline = Now() + action.budget,
       go_on =
           action.session.has_value()](testing::MemoryStore& store) -> absl::StatusOr<Admission> {
        absl::StatusOr<Admission> admission = Admission();
        if (!go_on) {
          admission = store.Admit(term_, grant, identity);
        } else if (const auto epoch = store.GrantEpoch(term_, grant); epoch.ok()) {
          admission->key = {grant.session, *epoch};
          admission->granted = true;
        } else {
          admission = epoch.status();
        }
        context().trace.Add(TraceKind::kGrant, number(),
                            admission.ok() ? admission->key.session.value() : 0,
                            admission.ok() ? admission->key.epoch.value() : 0);
        context().checker->OnGranted(*this, store, identity, deadline, admission);
        if (admission.ok() && poisonous) cluster_->poisonous.insert(admission->key.session);
        return admission;
      },
      [this, request = action.request](const absl::StatusOr<Admission>& admission) {
        if (!admission.ok()) {
          sessions_->OnGranted(request, admission.status(), Now());
          return;
        }
        Admitted admitted{.key = admission->key,
                          .granted = admission->granted,
                          .known = admission->known,
                          .tokens = admission->tokens};
        if (admission->outcome) admitted.outcome = FromRecord(*admission->outcome);
        sessions_->OnGranted(request, admitted, Now());
      });
}

void SimCoordinator::Fence(const SessionsActions::Fence& action) {
  context().checker->OnFenceSent(*this, action);
  SimNode* const node = cluster_->NodeNamed(action.to.node);
  FenceOrder order = {.session = action.key.session,
                      .epoch = action.key.epoch,
                      .term = term_,
                      .reason = action.kind,
                      .incarnation = action.to.incarnation};
  order.capability = FenceCapability(keys_[action.to.peer()], order);
  cluster_->network.Call<FenceReply>(
      this, node, kFenceTimeout,
      [node, order](std::function<void(absl::StatusOr<FenceReply>)> reply) {
        node->ServeFence(order, reply);
      },
      [this, key = action.key, stage = action.stage,
       to = action.to.node](absl::StatusOr<FenceReply> reply) {
        context().trace.Add(TraceKind::kFenceReply, number(), key.session.value(), stage);
        absl::StatusOr<FenceResult> result = FenceResult();
        if (!reply.ok()) {
          result = Blame(reply.status(), to);
        } else {
          result = FenceResult{.pages_released = static_cast<uint32_t>(reply->pages_released),
                               .buffers_released = static_cast<uint32_t>(reply->buffers_released),
                               .pages_pinned = reply->pages_pinned};
        }
        sessions_->OnFenceReply(key, stage, result, Now());
      });
}

void SimCoordinator::Open(const SessionsActions::Open& action) {
  context().checker->OnOpenSent(action);
  SimNode* const node = cluster_->NodeNamed(action.to.node);
  const Route& route = action.route;
  OpenAttempt open = {.key = action.key,
                      .term = term_,
                      .incarnation = action.to.incarnation,
                      .recipe = {.model_id = route.model_id,
                                 .numerics_id = route.numerics_id,
                                 .plan_epoch = route.plan},
                      .stage_index = static_cast<uint32_t>(action.stage),
                      .route = route.stages,
                      .tokens_max = static_cast<int32_t>(action.tokens_max),
                      .budget = action.budget,
                      .open_seq = action.open_seq};
  NamePages(action, open);
  open.capability = OpenCapability(keys_[action.to.peer()], open);
  if (action.stage == 0) head_capabilities_[action.key] = open.capability;
  cluster_->network.Call<OpenReply>(
      this, node, std::min(kOpenTimeout, ToSim(action.budget)),
      [node, open](std::function<void(absl::StatusOr<OpenReply>)> reply) {
        node->ServeOpen(open, reply);
      },
      [this, key = action.key, stage = action.stage,
       to = action.to.node](const absl::StatusOr<OpenReply>& reply) {
        context().trace.Add(TraceKind::kOpenReply, number(), key.session.value(),
                            static_cast<uint64_t>(reply.status().code()));
        absl::StatusOr<OpenResult> result = OpenResult();
        if (reply.ok()) {
          result->cached_tokens = static_cast<uint32_t>(reply->cached_tokens);
        } else {
          result = Blame(reply.status(), to);
        }
        sessions_->OnOpenReply(key, stage, result, Now());
      });
}

// The keys of the pages that a stage may have of prompt and delivered tokens.
void SimCoordinator::NamePages(const SessionsActions::Open& action, OpenAttempt& open) {
  const auto payload = payloads_.find(action.request);
  if (!options_.prefix_cache || payload == payloads_.end()) return;
  const GenerateWords& words = payload->second.words;
  if (static_cast<int32_t>(action.tokens_max) <= kPageTokens) return;
  PrefixKey& root = payload->second.root;
  if (root.empty()) {
    root = PrefixRoot(open.recipe.model_id, open.recipe.numerics_id, words.tenant);
  }
  std::vector<int32_t> tokens = words.prompt;
  tokens.insert(tokens.end(), action.delivered.begin(), action.delivered.end());
  const auto pages = PrefixPagesToFind(static_cast<int64_t>(tokens.size()), kPageTokens);
  tokens.resize(static_cast<size_t>(pages) * kPageTokens);
  open.prefix_root = root;
  open.prefix_keys = PrefixChain(root, tokens, kPageTokens);
}

void SimCoordinator::StartRun(const SessionsActions::Run& action) {
  SimNode* const node = cluster_->NodeNamed(action.head.node);
  const Payload& payload = payloads_.at(action.request);
  const GenerateWords& words = payload.words;
  RunOrder order = {
      .run = {.key = action.key,
              .prompt = words.prompt,
              .delivered = action.delivered,
              .new_tokens_max = words.new_tokens_max,
              .sampling = words.sampling,
              .budget = action.budget,
              .tenant = words.tenant,
              .cached_tokens = static_cast<int32_t>(action.cached_tokens),
              .prefix_root = payload.root,
              .rounds_in_flight = options_.rounds_in_flight > 0 ? options_.rounds_in_flight
                                                                : action.rounds.in_flight},
      .term = term_,
      .incarnation = action.head.incarnation,
      .capability = head_capabilities_[action.key],
      .asker = this};
  Stream* const stream = cluster_->network.Dial(this, node);
  runs_[action.key] = stream;
  cluster_->network.OnEnd(stream, 0, [this, stream, key = action.key, to = action.head.node] {
    OnRunEnd(stream, key, MakeFailure({.kind = FailureKind::kStreamReset, .node = to}, "reset"),
             std::nullopt);
  });
  cluster_->network.Send(stream, 0, [node, stream, order = std::move(order)]() mutable {
    node->ServeRun(std::move(order), stream);
  });
  After(ToSim(action.budget) + kSecond, [this, stream, key = action.key, to = action.head.node] {
    const auto run = runs_.find(key);
    if (run == runs_.end() || run->second != stream) return;
    cluster_->network.HangUp(stream, 0);
    OnRunEnd(stream, key, Blame(absl::DeadlineExceededError("no end in time"), to), std::nullopt);
  });
}

void SimCoordinator::OnRunToken(Stream* stream, const AttemptKey& key, uint32_t index,
                                int32_t token) {
  const auto run = runs_.find(key);
  if (run == runs_.end() || run->second != stream) return;
  context().trace.Add(TraceKind::kRunToken, number(), key.session.value(), index);
  sessions_->OnToken(key, index, token, Now());
}

void SimCoordinator::OnRunEnd(Stream* stream, const AttemptKey& key, const absl::Status& status,
                              const std::optional<RunResult>& result) {
  const auto run = runs_.find(key);
  if (run == runs_.end() || run->second != stream) return;
  runs_.erase(run);
  context().trace.Add(TraceKind::kRunEnd, number(), key.session.value(),
                      static_cast<uint64_t>(status.code()));
  if (result) {
    sessions_->OnRunEnd(key, *result, Now());
  } else {
    sessions_->OnRunFailed(key, status, Now());
  }
}

void SimCoordinator::Finish(const SessionsActions::Finish& action) {
  const AttemptRecord record = ToRecord(action.record);
  Store(
      [this, record, key = action.key, tokens = action.tokens](testing::MemoryStore& store) {
        absl::StatusOr<AttemptRecord> stored = store.FinishAttempt(term_, key, record, tokens);
        context().trace.Add(TraceKind::kFinish, number(), key.session.value(),
                            static_cast<uint64_t>(record.state));
        context().checker->OnFinished(*this, key, record, stored);
        if (stored.ok() && context().rng.Chance(20)) {
          // Whoever comes second, whatever it says, finds the record that stands.
          AttemptRecord other = record;
          other.state = AttemptState::kFailed;
          other.kind = FailureKind::kWorkerDeath;
          const auto again = store.FinishAttempt(term_, key, other, {});
          context().checker->OnFinished(*this, key, other, again);
        }
        return stored;
      },
      [this, key = action.key](const absl::StatusOr<AttemptRecord>& stored) {
        if (stored.ok()) {
          sessions_->OnFinished(key, ToOutcome(stored->state), Now());
        } else {
          sessions_->OnFinished(key, stored.status(), Now());
        }
      });
}

void SimCoordinator::End(const SessionsActions::End& action) {
  const auto payload = payloads_.find(action.request);
  if (payload != payloads_.end() && payload->second.probe != 0) {
    routes_->OnProbeDone(payload->second.probe_plan, payload->second.probe, action.status, Now());
    return;
  }
  Dismiss(action.client, action.status, action.result.tokens);
}

void SimCoordinator::Dismiss(RequestId client, const absl::Status& status, uint32_t tokens) {
  const auto found = callers_.find(client);
  if (found == callers_.end()) return;
  Stream* const stream = found->second.stream;
  Tell(client, {.ended = true, .status = status, .tokens = tokens});
  callers_.erase(client);
  cluster_->network.HangUp(stream, 1);
}

void SimCoordinator::Tell(RequestId client, ClientWords words) {
  const auto found = callers_.find(client);
  if (found == callers_.end()) return;
  SimClient* const listener = found->second.client;
  Stream* const stream = found->second.stream;
  words.teller = number();
  cluster_->network.Send(stream, 1, [listener, stream, words = std::move(words)] {
    listener->OnWords(stream, words);
  });
}

}  // namespace shardline::sim
