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
    default:
      return SessionOutcome::kFailed;
  }
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

template <typename Work, typename Then>
void SimCoordinator::Store(Work work, Then then) {
  SimContext& sim = context();
  disk_free_at_ = std::max(disk_free_at_, sim.queue.now()) +
                  sim.rng.Between(disk_->write_min, disk_->write_max);
  sim.queue.At(disk_free_at_, this, [this, work = std::move(work), then = std::move(then)] {
    context().trace.Add(TraceKind::kStore, number());
    auto result = work(*disk_->store);
    if (disk_->store->broken()) return OnBrokenDisk();
    After(context().rng.Between(1 * kMicrosecond, 50 * kMicrosecond),
          [this, then, result = std::move(result)]() mutable {
            context().trace.Add(TraceKind::kStored, number());
            then(std::move(result));
          });
  });
}

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
  const SessionsActions actions = sessions_->TakeActions();
  if (actions.empty()) return false;
  for (const auto& action : actions.grant) Grant(action);
  for (const auto& action : actions.fence) Fence(action);
  for (const auto& action : actions.cancel_run) {
    const auto run = runs_.find(action.key);
    if (run == runs_.end()) continue;
    Stream* const stream = run->second;
    cluster_->network.HangUp(stream, 0);
    // The transport answers for the head.
    After(0, [this, key = action.key, stream] {
      OnRunEnd(stream, key, MakeFailure(FailureKind::kCancelled, "cancelled"), std::nullopt);
    });
  }
  for (const auto& action : actions.open) Open(action);
  for (const auto& action : actions.started) {
    Tell(action.request, {.started = action.key});
  }
  for (const auto& action : actions.run) StartRun(action);
  for (const auto& action : actions.deliver) {
    Tell(action.request, {.index = action.index, .token = action.token});
  }
  for (const auto& action : actions.finish) Finish(action);
  for (const auto& action : actions.end) End(action);
  return true;
}

void SimCoordinator::OnGenerate(SimClient* client, Stream* stream, const GenerateWords& words) {
  const RequestId request(++requests_);
  context().trace.Add(TraceKind::kGenerate, number(), request.value());
  const absl::StatusOr<Route> route = routes_->RouteFor("", Now());
  callers_[request] = {.client = client, .stream = stream, .words = words};
  if (!route.ok()) {
    Tell(request, {.ended = true, .status = route.status()});
    callers_.erase(request);
    cluster_->network.HangUp(stream, 1);
    return;
  }
  callers_[request].route = *route;
  cluster_->network.OnEnd(stream, 1, [this, request] {
    context().trace.Add(TraceKind::kClientGone, number(), request.value());
    sessions_->OnCancel(request, Now());
  });
  sessions_->OnGenerate({.request = request,
                         .route = *route,
                         .prompt_tokens = static_cast<uint32_t>(words.prompt.size()),
                         .new_tokens_max = static_cast<uint32_t>(words.new_tokens_max),
                         .budget = words.budget},
                        Now());
}

void SimCoordinator::StartProbe(const RouteActions::Probe& action) {
  const RequestId request(++requests_);
  Caller& caller = callers_[request];
  caller.probe = action.number;
  caller.route = action.route;
  caller.words = {.prompt = {0}, .new_tokens_max = 1, .budget = absl::Seconds(60)};
  sessions_->OnGenerate({.request = request,
                         .route = action.route,
                         .prompt_tokens = 1,
                         .new_tokens_max = 1,
                         .budget = absl::Seconds(60)},
                        Now());
}

void SimCoordinator::Grant(const SessionsActions::Grant& action) {
  const AttemptGrant grant{.session = action.session.value_or(SessionId()),
                           .plan = action.plan,
                           .route = action.route,
                           .budget = action.budget};
  Store(
      [this, grant](testing::MemoryStore& store) {
        absl::StatusOr<AttemptKey> key = store.CreateAndGrant(term_, grant);
        context().checker->OnGranted(term_, key);
        return key;
      },
      [this, request = action.request](const absl::StatusOr<AttemptKey>& key) {
        sessions_->OnGranted(request, key, Now());
      });
}

void SimCoordinator::Fence(const SessionsActions::Fence& action) {
  SimNode* const node = cluster_->NodeNamed(action.to.node);
  const FenceOrder order = {.session = action.key.session,
                            .epoch = action.key.epoch,
                            .term = term_,
                            .reason = action.kind};
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
  SimNode* const node = cluster_->NodeNamed(action.to.node);
  const Route& route = callers_.at(action.request).route;
  const OpenAttempt open = {.key = action.key,
                            .term = term_,
                            .incarnation = action.to.incarnation,
                            .recipe = {.model_id = route.model_id,
                                       .numerics_id = route.numerics_id,
                                       .plan_epoch = route.plan},
                            .stage_index = static_cast<uint32_t>(action.stage),
                            .route = route.stages,
                            .tokens_max = static_cast<int32_t>(action.tokens_max),
                            .budget = action.budget};
  cluster_->network.Call<OpenReply>(
      this, node, std::min(kOpenTimeout, ToSim(action.budget)),
      [node, open](std::function<void(absl::StatusOr<OpenReply>)> reply) {
        node->ServeOpen(open, reply);
      },
      [this, key = action.key, stage = action.stage,
       to = action.to.node](const absl::StatusOr<OpenReply>& reply) {
        context().trace.Add(TraceKind::kOpenReply, number(), key.session.value(),
                            static_cast<uint64_t>(reply.status().code()));
        sessions_->OnOpenReply(key, stage, Blame(reply.status(), to), Now());
      });
}

void SimCoordinator::StartRun(const SessionsActions::Run& action) {
  SimNode* const node = cluster_->NodeNamed(action.head.node);
  const GenerateWords& words = callers_.at(action.request).words;
  RunOrder order = {.run = {.key = action.key,
                            .prompt = words.prompt,
                            .delivered = action.delivered,
                            .new_tokens_max = words.new_tokens_max,
                            .sampling = words.sampling,
                            .budget = action.budget},
                    .term = term_,
                    .incarnation = action.head.incarnation,
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
  const AttemptRecord record{.state = ToState(action.outcome),
                             .prompt_tokens = action.prompt_tokens,
                             .tokens = action.tokens,
                             .kind = action.kind,
                             .detail = action.detail};
  Store(
      [this, record, key = action.key](testing::MemoryStore& store) {
        absl::StatusOr<AttemptRecord> stored = store.FinishAttempt(term_, key, record, {});
        context().checker->OnFinished(term_, key, record, stored);
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
  const auto found = callers_.find(action.request);
  if (found == callers_.end()) return;
  Caller caller = found->second;
  if (caller.client == nullptr) {
    callers_.erase(found);
    routes_->OnProbeDone(caller.route.plan, caller.probe, action.status, Now());
    return;
  }
  Tell(action.request, {.ended = true, .status = action.status, .tokens = action.result.tokens});
  callers_.erase(action.request);
  cluster_->network.HangUp(caller.stream, 1);
}

void SimCoordinator::Tell(RequestId request, ClientWords words) {
  const auto found = callers_.find(request);
  if (found == callers_.end() || found->second.client == nullptr) return;
  SimClient* const client = found->second.client;
  Stream* const stream = found->second.stream;
  cluster_->network.Send(
      stream, 1, [client, stream, words = std::move(words)] { client->OnWords(stream, words); });
}

}  // namespace shardline::sim
