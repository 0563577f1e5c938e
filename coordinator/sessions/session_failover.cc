// Routes and restarts of one session.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/planted_bug.h"
#include "base/version.h"
#include "coordinator/sessions/session_core.h"

namespace shardline {
namespace {

bool Uses(const Route& route, const RouteSuspects& suspects) {
  const std::vector<RouteStage>& stages = route.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& nodes = suspects.nodes;
    if (std::find(nodes.begin(), nodes.end(), stages[i].peer()) != nodes.end()) return true;
    const RouteSuspects::Link link{stages[i].node, stages[(i + 1) % stages.size()].node};
    const auto& links = suspects.links;
    if (std::find(links.begin(), links.end(), link) != links.end()) return true;
  }
  return false;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

void SessionCore::AskForRoute() {
  last_resort_ = false;
  RouteSuspects avoid = suspects_;
  avoid.nodes.insert(avoid.nodes.end(), full_.nodes.begin(), full_.nodes.end());
  AskForRouteWithout(avoid);
}

void SessionCore::AskForRouteWithout(const RouteSuspects& avoid) {
  phase_ = Phase::kRouting;
  const bool remembers = !Planted(PlantedBug::kRestartForgetsSuspects);
  shared_.actions->find_route.push_back({.request = request_.request,
                                         .model = request_.model,
                                         .avoid = remembers ? avoid : RouteSuspects(),
                                         .affinity = request_.affinity});
}

void SessionCore::OnRoute(const absl::StatusOr<Route>& route, Instant now) {
  if (phase_ != Phase::kRouting || ending_) return;
  OnTick(now);
  if (ending_) return;
  if (!route.ok()) {
    OnNoRoute(route.status(), now);
    return;
  }
  if (const absl::Status refusal = Refusal(*route); !refusal.ok()) {
    EndFailed(refusal, now);
    return;
  }
  if (Uses(*route, full_)) {
    Queue(now);
    return;
  }
  const bool forgets = Planted(PlantedBug::kRestartForgetsSuspects);
  if (now < retry_at_ && Uses(*route, suspects_) && !forgets) {
    Wait(retry_at_);
    return;
  }
  route_ = *route;
  // Who may be known to the ledger by its key or number must be asked for there first.
  const bool known = key_ || !request_.identity.key.empty() || request_.identity.session;
  if (!known && MustQueue()) {
    Queue(now);
  } else {
    Grant(now);
  }
}

void SessionCore::OnNoRoute(const absl::Status& status, Instant now) {
  const RestartRule rule = RestartRuleOf(FailureKindOf(failure_));
  if (!key_ && request_.identity.session) {
    // It may be over, and then no route is needed to say so.
    route_ = Route();
    Grant(now);
  } else if (absl::IsNotFound(status)) {
    EndFailed(status, now);  // A model that was unloaded stays away.
  } else if (!full_.empty() || shared_.queue->Tries(request_.request)) {
    Queue(now);
  } else if (!key_) {
    EndFailed(status, now);  // A new request is told at once.
  } else if (rule == RestartRule::kOtherRoute) {
    EndFailed(failure_, now);
  } else if (now >= retry_at_ && !last_resort_ && suspects_.nodes.size() > banned_.nodes.size()) {
    // A suspect that has had its pause is better than nothing. Links are the table's to judge.
    last_resort_ = true;
    AskForRouteWithout({.nodes = banned_.nodes, .links = suspects_.links});
  } else {
    const Instant again = now + shared_.options->route_retry;
    Wait(now < retry_at_ ? std::min(again, retry_at_) : again);
  }
}

// Why a session that has begun elsewhere must not go on along `route`.
absl::Status SessionCore::Refusal(const Route& route) {
  if (route.stages.empty()) return absl::InternalError("a route without stages");
  if (!key_ && !request_.model_id.empty() && route.model_id != request_.model_id) {
    return MakeFailure(FailureDetail{.kind = FailureKind::kOverloaded,
                                     .retry_after = shared_.options->retry_after},
                       "the model's name has just been given to another file");
  }
  const uint64_t tokens = uint64_t{request_.prompt_tokens} + request_.new_tokens_max;
  const uint64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  if (!key_ && route.kv_pages_min > 0 && pages > route.kv_pages_min) {
    ++shared_.stats->too_large;
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("prompt and answer may take ", tokens, " tokens, which is ",
                                    pages, " KV pages, and the nodes have ", route.kv_pages_min,
                                    " in all: it would never fit; ask for fewer tokens"));
  }
  if (Uses(route, banned_)) return failure_;
  if (!route_.stages.empty() &&
      (route.model_id != route_.model_id || route.numerics_id != route_.numerics_id)) {
    return Complete(
        MakeFailure(FailureKind::kIncompatibleRecipe,
                    absl::StrCat("the session began on ", route_.model_id.value(), " with ",
                                 route_.numerics_id.value(), " and can only go on with ",
                                 route.model_id.value(), " with ", route.numerics_id.value())));
  }
  return absl::OkStatus();
}

bool SessionCore::MustQueue() const {
  return !tried_ && !request_.route && !shared_.queue->Tries(request_.request) &&
         shared_.queue->MustWait(model());
}

void SessionCore::Queue(Instant now) {
  phase_ = Phase::kQueued;
  tried_ = true;
  AdmissionQueue& queue = *shared_.queue;
  if (queue.Tries(request_.request)) {
    queue.OnRefused(request_.request, now);
    return;
  }
  // By a head that names no stage, after all of them had room: as much a refusal as theirs.
  const bool is_refused =
      opens_sent_ && RestartRuleOf(FailureKindOf(failure_)) == RestartRule::kLater;
  const absl::Status entered =
      queue.Enter({.request = request_.request,
                   .line = model(),
                   .tenant = request_.identity.tenant,
                   .tokens = uint64_t{request_.prompt_tokens} + request_.new_tokens_max,
                   .ahead = started_sent_,
                   .refused = !full_.empty() || is_refused},
                  now);
  if (entered.ok()) return;
  if (failure_.ok()) {
    EndFailed(Complete(entered), now);
    return;
  }
  FailureDetail detail = FailureDetailOf(failure_);
  detail.retry_after = std::max(detail.retry_after, FailureDetailOf(entered).retry_after);
  EndFailed(MakeFailure(detail, absl::StrCat(Text(failure_), "; ", Text(entered))), now);
}

// The ledger does not know it, and has granted it an attempt that no stage is to hear of.
void SessionCore::QueueGranted(Instant now) {
  failure_ = Complete(MakeFailure(FailureKind::kOverloaded, "others were first"));
  failed_ = key_;
  previous_ = RecordOf(SessionOutcome::kFenced, failure_);
  closed_ = true;
  ++attempts_without_room_;
  ++shared_.stats->attempts_fenced;
  Queue(now);
}

void SessionCore::OnTurn(Instant now) {
  OnTick(now);
  if (phase_ != Phase::kQueued || ending_) return;
  full_ = RouteSuspects();
  AskForRoute();
}

void SessionCore::SeekRoom(const absl::Status& status, Instant now) {
  const FailureKind kind = FailureKindOf(status);
  SessionsStats& stats = *shared_.stats;
  ++stats.without_room;
  ++stats.attempts_fenced;
  ++attempts_without_room_;
  if (started_sent_ && !failed_at_) failed_at_ = now;
  previous_ = RecordOf(SessionOutcome::kFenced, status);
  failure_ = status;
  failed_ = key_;
  CloseStages(kind);
  run_out_ = false;
  // Without a name that means something it is the head, so that no route is tried twice at once.
  const RouteStage* stage = StageOf(FailureDetailOf(status).node);
  full_.nodes.push_back(stage != nullptr ? stage->peer() : route_.stages.front().peer());
  AskForRoute();
}

void SessionCore::OnRoutesChanged(Instant now) {
  if (phase_ != Phase::kWaiting || !paid_ || ending_) return;
  OnTick(now);
  if (phase_ == Phase::kWaiting && !ending_) AskForRoute();
}

void SessionCore::Wait(Instant until) {
  shared_.queue->Leave(request_.request);
  phase_ = Phase::kWaiting;
  ask_at_ = until;
}

void SessionCore::TryAgain(Instant now) {
  if (!paid_ && !shared_.restarts->Take(now)) {
    Wait(shared_.restarts->NextAt(now));
    return;
  }
  paid_ = true;
  AskForRoute();
}

void SessionCore::Grant(Instant now) {
  phase_ = Phase::kGranting;
  const bool first = !key_.has_value();
  shared_.actions->grant.push_back(
      {.request = request_.request,
       .session = first ? std::nullopt : std::optional<SessionId>(key_->session),
       .plan = route_.plan,
       .route = route_.ToString(),
       .budget = deadline_ - now,
       .tokens_max = request_.new_tokens_max,
       .identity = first ? request_.identity : SessionIdentity(),
       .previous = previous_});
}

void SessionCore::OnGrantRefused(const absl::Status& status, Instant now) {
  const bool full = FailureKindOf(status) == FailureKind::kOverloaded;
  if (ending_) {
    phase_ = Phase::kFinishing;
    if (key_) {
      SendFinish();  // Of the attempt before, whose room was reserved when it was granted.
    } else {
      if (client_) SendEnd(ending_->status, now);
      Retire(ending_->outcome);
    }
  } else if (key_ && full) {
    Wait(now + std::max(FailureDetailOf(status).retry_after, shared_.options->route_retry));
  } else {
    phase_ = Phase::kFinishing;
    EndFailed(status, now);
  }
}

void SessionCore::TakeUpWithoutRoute(Instant now) {
  failure_ = Complete(MakeFailure(FailureKind::kCacheMiss, "there was no route to take it up on"));
  failed_ = key_;
  previous_ = RecordOf(SessionOutcome::kFenced, failure_);
  closed_ = true;
  Wait(now + shared_.options->route_retry);
}

void SessionCore::FailAttempt(const absl::Status& status, Instant now) {
  const FailureKind kind = FailureKindOf(status);
  if (kind == FailureKind::kDeadlineExceeded) {
    End(Ending{.outcome = SessionOutcome::kExpired, .status = status}, now);
    return;
  }
  const RestartRule rule = RestartRuleOf(kind);
  if (kind == FailureKind::kNonFinite) ++non_finite_;
  const bool routed = key_ && !request_.route && !route_.stages.empty();
  if (rule == RestartRule::kLater && routed && now < deadline_) {
    SeekRoom(status, now);
    return;
  }
  Suspect(status);
  if (MayRestart(status, rule, now)) {
    Restart(status, now);
  } else {
    EndFailed(status, now);
  }
}

bool SessionCore::MayRestart(const absl::Status& status, RestartRule rule, Instant now) const {
  if (request_.route || !key_ || now >= deadline_) return false;
  const uint32_t counted = attempts_ - attempts_without_room_;
  const bool spent = counted >= static_cast<uint32_t>(shared_.options->attempts_max);
  if (spent && !Planted(PlantedBug::kRestartsUnlimited)) return false;
  if (rule == RestartRule::kOtherRoute) {
    // Twice, on routes that share no culprit: it is the request.
    return !FailureDetailOf(status).node.empty() && non_finite_ <= 1;
  }
  return rule != RestartRule::kNever;
}

void SessionCore::Suspect(const absl::Status& status) {
  const FailureDetail detail = FailureDetailOf(status);
  const RouteStage* stage = detail.node.empty() ? nullptr : StageOf(detail.node);
  if (stage == nullptr) return;
  if (LeavesStepsUnverified(detail.kind)) blamed_ = stage->peer();
  if (!detail.reporter.empty() && detail.reporter != detail.node) {
    suspects_.links.push_back({detail.reporter, detail.node});
    shared_.actions->suspect_links.push_back(suspects_.links.back());
    return;
  }
  suspects_.nodes.push_back(stage->peer());
  if (RestartRuleOf(detail.kind) == RestartRule::kOtherRoute) {
    banned_.nodes.push_back(stage->peer());
  }
}

void SessionCore::Restart(const absl::Status& status, Instant now) {
  const FailureKind kind = FailureKindOf(status);
  const bool unverified = ran_ && LeavesStepsUnverified(kind);
  SessionsStats& stats = *shared_.stats;
  ++stats.restarts;
  ++stats.restarts_by_kind[static_cast<size_t>(kind)];
  ++(unverified ? stats.attempts_unverified : stats.attempts_fenced);
  if (!failed_at_) failed_at_ = now;
  previous_ = RecordOf(unverified ? SessionOutcome::kUnverified : SessionOutcome::kFenced, status);
  failure_ = status;
  failed_ = key_;
  CloseStages(kind);
  run_out_ = false;
  if (Planted(PlantedBug::kRestartLosesDeadline)) {
    deadline_ = now + request_.budget;
    end_by_ = deadline_ + shared_.options->end_grace;
  }
  retry_at_ = now + shared_.options->suspect_backoff * (attempts_ - attempts_without_room_);
  paid_ = false;
  TryAgain(now);
  if (!paid_) ++shared_.stats->restarts_paced;
}

void SessionCore::OnNodeLost(const NodeId& node, Incarnation incarnation, FailureKind kind,
                             const std::string& reason, Instant now) {
  if (ending_) return;
  const bool open =
      phase_ == Phase::kOpening || phase_ == Phase::kRunning || phase_ == Phase::kClassifying;
  const RouteStage* stage = open || phase_ == Phase::kGranting ? StageOf(node) : nullptr;
  if (stage != nullptr && stage->incarnation > incarnation) stage = nullptr;
  const bool blamed = blamed_ && blamed_->node == node && blamed_->incarnation <= incarnation;
  if (((stage != nullptr && open) || blamed) && CountDeath(now)) return;
  if (stage == nullptr) return;
  const absl::Status failure = Blame(*stage, kind, reason);
  if (open) {
    FailAttempt(failure, now);
    blamed_.reset();  // Its death is counted.
  } else {
    route_lost_ = failure;
  }
}

void SessionCore::OnNodeDrained(const NodeId& node, const std::string& reason, Instant now) {
  if (ending_) return;
  const RouteStage* stage = StageOf(node);
  if (stage == nullptr) return;
  const absl::Status moved = Blame(*stage, FailureKind::kOverloaded, reason);
  if (phase_ == Phase::kGranting) {
    route_lost_ = moved;
  } else if (phase_ == Phase::kOpening || phase_ == Phase::kRunning) {
    FailAttempt(moved, now);
  }
}

bool SessionCore::CountDeath(Instant now) {
  blamed_.reset();
  ++deaths_;
  if (deaths_ < shared_.options->node_deaths_max || Planted(PlantedBug::kPoisonUnlimited)) {
    return false;
  }
  ++shared_.stats->poisoned;
  End(Ending{.outcome = SessionOutcome::kFailed,
             .status = Complete(
                 MakeFailure(FailureKind::kPoison,
                             absl::StrCat(deaths_,
                                          " nodes were lost under this session; it is not tried "
                                          "again")))},
      now);
  return true;
}

}  // namespace shardline
