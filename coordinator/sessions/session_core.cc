#include "coordinator/sessions/session_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/prefix_chain.h"
#include "base/version.h"

namespace shardline {
namespace {

constexpr size_t kDetailBytesMax = 1024;  // Of a record; messages come from peers.

std::string StageText(const RouteStage& stage) {
  return absl::StrCat(stage.node.value(), " (", stage.layers.ToString(), ")");
}

std::string Seconds(absl::Duration d) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(d));
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

SessionCore::SessionCore(const SessionShared& shared, const SessionRequest& request, Instant now)
    : shared_(shared),
      request_(request),
      arrived_at_(now),
      deadline_(now + request.budget),
      client_(request.request),
      last_client_(request.request),
      held_(request.tokens_held),
      end_by_(deadline_ + shared.options->end_grace) {
  if (request_.identity.session) delivered_ = request_.tokens_held;
}

void SessionCore::Start(Instant now) {
  if (!request_.route) {
    AskForRoute();
    return;
  }
  route_ = *request_.route;
  Grant(now);
}

void SessionCore::OnGranted(const absl::StatusOr<Admitted>& admitted, Instant now) {
  if (phase_ != Phase::kGranting) return;
  if (!admitted.ok()) {
    OnGrantRefused(admitted.status(), now);
    return;
  }
  if (admitted->outcome) {
    Replay(*admitted, now);
    return;
  }
  SL_CHECK(admitted->granted);
  if (key_ && (admitted->key.session != key_->session || admitted->key.epoch <= key_->epoch)) {
    return;  // A copy of an older answer.
  }
  key_ = admitted->key;
  previous_.reset();
  ++attempts_;
  ++shared_.stats->attempts;
  opens_sent_ = closed_ = ran_ = run_out_ = false;
  if (ending_) {
    // It ended while the store was busy; no stage has heard of this attempt.
    phase_ = Phase::kFinishing;
    SendFinish();
    return;
  }
  phase_ = Phase::kOpening;
  phase_until_ = now + shared_.options->open_timeout;
  OnTick(now);
  if (ending_) return;
  if (route_.stages.empty()) {
    TakeUpWithoutRoute(now);
  } else if (const absl::Status lost = std::exchange(route_lost_, absl::OkStatus()); !lost.ok()) {
    FailAttempt(lost, now);
  } else if (MustQueue()) {
    QueueGranted(now);
  } else {
    OpenStages(now);
  }
}

void SessionCore::OpenStages(Instant now) {
  opens_sent_ = tried_ = true;
  opened_.assign(route_.stages.size(), false);
  cached_tokens_.assign(route_.stages.size(), 0);
  for (size_t i = 0; i < route_.stages.size(); ++i) {
    shared_.actions->open.push_back({.key = *key_,
                                     .request = request_.request,
                                     .stage = i,
                                     .route = route_,
                                     .to = route_.stages[i],
                                     .tokens_max = request_.prompt_tokens + request_.new_tokens_max,
                                     .budget = deadline_ - now,
                                     .open_seq = ++*shared_.open_seq,
                                     .delivered = ForcedPrefix()});
  }
}

const std::vector<int32_t>& SessionCore::ForcedPrefix() const {
  static const std::vector<int32_t> kNone;
  return Planted(PlantedBug::kRestartRepeatsTokens) ? kNone : delivered_;
}

// The shortest stage decides: the others compute again what it lacks.
uint32_t SessionCore::CachedTokens() const {
  const auto [least, most] = std::minmax_element(cached_tokens_.begin(), cached_tokens_.end());
  const bool planted = Planted(PlantedBug::kPrefixLongerThanHit);
  const auto prefix = static_cast<int64_t>(request_.prompt_tokens + ForcedPrefix().size());
  const auto pages = static_cast<uint32_t>(PrefixPagesToFind(prefix, kPageTokens));
  return std::min((planted ? *most : *least) / kPageTokens, pages) * kPageTokens;
}

void SessionCore::OnOpenReply(size_t stage, const absl::StatusOr<OpenResult>& reply, Instant now) {
  if (phase_ != Phase::kOpening || ending_) return;
  SL_CHECK(stage < opened_.size());
  OnTick(now);
  if (phase_ != Phase::kOpening || ending_) return;
  if (!reply.ok()) {
    OnOpenRefused(stage, reply.status(), now);
    return;
  }
  opened_[stage] = true;
  cached_tokens_[stage] = reply->cached_tokens;
  if (std::find(opened_.begin(), opened_.end(), false) == opened_.end()) StartRun(now);
}

void SessionCore::OnOpenRefused(size_t stage, const absl::Status& status, Instant now) {
  const RouteStage& from = route_.stages[stage];
  FailureDetail detail = FailureDetailOf(status);
  if (IsConnectionLoss(status)) detail.kind = FailureKind::kStreamReset;
  if (RestartRuleOf(detail.kind) == RestartRule::kLater &&
      detail.retry_after <= absl::ZeroDuration()) {
    detail.retry_after = shared_.options->retry_after;
  }
  if (detail.node.empty()) detail.node = from.node;
  const std::string message = absl::StrCat(StageText(from), " refused: ", Text(status));
  const absl::Status failure = detail.kind == FailureKind::kNone
                                   ? absl::Status(status.code(), message)
                                   : Complete(MakeFailure(detail, message));
  if (Planted(PlantedBug::kRefusedOpenLeaks)) closed_ = true;
  if (IsConnectionLoss(status)) {
    Classify(failure, now);
  } else {
    FailAttempt(failure, now);
  }
}

void SessionCore::StartRun(Instant now) {
  phase_ = Phase::kRunning;
  run_out_ = ran_ = true;
  full_ = RouteSuspects();
  if (shared_.queue->Tries(request_.request)) shared_.queue->OnAdmitted(request_.request, now);
  run_cached_tokens_ = CachedTokens();
  if (!started_sent_) {
    started_sent_ = true;
    shared_.actions->started.push_back(
        {.request = request_.request, .client = *client_, .key = *key_, .route = route_});
    CatchUp(held_.size());
  } else if (failed_) {
    shared_.actions->restarted.push_back({.request = request_.request,
                                          .client = *client_,
                                          .from = *failed_,
                                          .to = *key_,
                                          .route = route_,
                                          .reason = failure_,
                                          .attempt = attempts_});
  }
  shared_.actions->run.push_back({.key = *key_,
                                  .request = request_.request,
                                  .head = route_.stages.front(),
                                  .rounds = route_.rounds,
                                  .delivered = ForcedPrefix(),
                                  .budget = deadline_ - now,
                                  .cached_tokens = run_cached_tokens_});
}

void SessionCore::OnToken(uint32_t index, int32_t token, Instant now) {
  const bool runs = phase_ == Phase::kRunning && !ending_;
  const bool late = Planted(PlantedBug::kTokensAfterTheEnd) && ending_ && client_ && started_sent_;
  if (!runs && !late) {
    ++shared_.stats->tokens_dropped;
    return;
  }
  if (runs) OnTick(now);
  const auto next = static_cast<uint32_t>(delivered_.size());
  if ((ending_ && !late) ||
      (index < next && delivered_[index] == token && !Planted(PlantedBug::kRestartRepeatsTokens))) {
    ++shared_.stats->tokens_dropped;
    return;
  }
  const RouteStage& head = route_.stages.front();
  if (index < next && !Planted(PlantedBug::kRestartRepeatsTokens)) {
    ++shared_.stats->tokens_dropped;
    FailAttempt(Blame(head, FailureKind::kDiverged,
                      absl::StrCat("token ", index, " is ", token, " now and was ",
                                   delivered_[index], " when it was delivered")),
                now);
    return;
  }
  if (index > next || next >= request_.new_tokens_max) {
    ++shared_.stats->tokens_dropped;
    FailAttempt(Blame(head, FailureKind::kStepConflict,
                      absl::StrCat("the head sent token ", index, " where token ", next,
                                   " of at most ", request_.new_tokens_max, " is next")),
                now);
    return;
  }
  if (!first_token_at_) first_token_at_ = now;
  if (failed_at_) shared_.stats->failover_seconds.Observe(absl::ToDoubleSeconds(now - *failed_at_));
  failed_at_.reset();
  if (index == next) delivered_.push_back(token);
  ++shared_.stats->tokens_delivered;
  shared_.actions->deliver.push_back({.request = request_.request,
                                      .client = *client_,
                                      .key = *key_,
                                      .index = index,
                                      .token = token});
}

void SessionCore::OnRunEnd(const RunResult& result, Instant now) {
  if (!std::exchange(run_out_, false) || ending_) return;
  OnTick(now);
  if (ending_ || phase_ != Phase::kRunning) return;
  if (result.tokens != delivered_.size()) {
    FailAttempt(Blame(route_.stages.front(), FailureKind::kStepConflict,
                      absl::StrCat("the head ended after ", result.tokens, " tokens, but ",
                                   delivered_.size(), " have arrived")),
                now);
    return;
  }
  result_ = result;
  result_.cached_tokens = std::min(run_cached_tokens_, request_.prompt_tokens);
  End(Ending{.outcome = SessionOutcome::kCompleted, .status = absl::OkStatus()}, now);
}

void SessionCore::OnRunFailed(const absl::Status& status, Instant now) {
  SL_CHECK(!status.ok());
  if (!std::exchange(run_out_, false) || ending_) return;
  OnTick(now);
  if (ending_ || phase_ != Phase::kRunning) return;
  if (!IsConnectionLoss(status)) {
    FailAttempt(Complete(status), now);
    return;
  }
  // Either the head's call broke, or the head reports that a link of the ring did. Membership
  // will soon know which node is gone; until then the head's word is only a suspicion.
  FailureDetail detail = FailureDetailOf(status);
  detail.kind = FailureKind::kStreamReset;
  if (detail.node.empty()) detail.node = route_.stages.front().node;
  Classify(Complete(MakeFailure(detail, absl::StrCat(detail.node.value(), ": ", Text(status)))),
           now);
}

void SessionCore::Classify(const absl::Status& suspicion, Instant now) {
  suspicion_ = suspicion;
  phase_ = Phase::kClassifying;
  phase_until_ = std::min(now + shared_.options->classify_grace, deadline_);
}

void SessionCore::OnFinished(const absl::StatusOr<SessionOutcome>& stored, Instant now) {
  if (!std::exchange(finish_out_, false)) return;
  const bool superseded =
      !stored.ok() && FailureKindOf(stored.status()) == FailureKind::kStaleEpoch;
  if (!stored.ok() && !superseded) {
    ++shared_.stats->finish_retries;
    finish_at_ = now + shared_.options->finish_retry;
    return;
  }
  // Another coordinator may have closed the attempt; then its word stands, not ours.
  const SessionOutcome stands = stored.value_or(SessionOutcome::kFenced);
  if (client_ && (stands == ending_->outcome || !ending_->status.ok())) {
    SendEnd(ending_->status, now);
  } else if (client_) {
    SendEnd(Complete(MakeFailure(FailureKind::kStaleEpoch,
                                 absl::StrCat("another coordinator closed this attempt as ",
                                              stored.ok() ? std::string(SessionOutcomeName(stands))
                                                          : std::string("its own")))),
            now);
  }
  if (stands == SessionOutcome::kCompleted) shared_.stats->tokens_billed += delivered_.size();
  Retire(stands);
}

void SessionCore::OnCancel(const std::string& reason, Instant now) {
  End(Ending{.outcome = SessionOutcome::kCancelled,
             .status = Complete(MakeFailure(FailureKind::kCancelled, reason))},
      now);
}

void SessionCore::End(Ending ending, Instant now) {
  if (ending_) return;
  // A success waits for its record; anything else is told soon, whatever the store does.
  if (!ending.status.ok()) end_by_ = std::min(now, deadline_) + shared_.options->end_grace;
  ending_ = std::move(ending);
  finish_at_ = now;
  shared_.queue->Leave(request_.request);
  CloseStages(FailureKindOf(ending_->status));
  if (Planted(PlantedBug::kSuccessBeforeRecord) && ending_->status.ok()) {
    SendEnd(ending_->status, now);
  }
  if (phase_ == Phase::kGranting) return;  // Its answer says which record there is to write.
  phase_ = Phase::kFinishing;
  if (key_) {
    SendFinish();
    return;
  }
  SendEnd(ending_->status, now);
  Retire(ending_->outcome);
}

void SessionCore::EndFailed(const absl::Status& status, Instant now) {
  const bool unverified = (ran_ && LeavesStepsUnverified(FailureKindOf(status))) ||
                          (previous_ && previous_->outcome == SessionOutcome::kUnverified);
  End(Ending{.outcome = unverified ? SessionOutcome::kUnverified : SessionOutcome::kFailed,
             .status = status},
      now);
}

void SessionCore::CloseStages(FailureKind kind) {
  if (std::exchange(closed_, true)) return;
  if (run_out_) shared_.actions->cancel_run.push_back({.key = *key_});
  if (!opens_sent_) return;
  // Who was let in by turn and refused, by a stage or by its head, wakes nobody: its turn would
  // come again at once, for ever.
  const bool is_full = kind == FailureKind::kOverloaded || kind == FailureKind::kKvExhausted;
  const bool frees = ran_ ? !is_full : !shared_.queue->Tries(request_.request);
  // Also where the open was refused or is still on its way: the fence is the tombstone.
  for (size_t i = 0; i < route_.stages.size(); ++i) {
    if (Planted(PlantedBug::kFanOutStopsAtSilentStage) && !opened_[i]) break;
    if (Planted(PlantedBug::kCancelMissesLateOpens) && !opened_[i]) continue;
    shared_.fences->Send({.key = *key_, .stage = i, .to = route_.stages[i], .kind = kind},
                         deadline_ + shared_.options->fence_keep, frees ? model() : "");
  }
}

void SessionCore::SendFinish() {
  finish_out_ = true;
  shared_.actions->finish.push_back(
      {.request = request_.request,
       .key = *key_,
       .record = RecordOf(ending_->outcome, ending_->status),
       .tokens = request_.identity.key.empty() ? std::vector<int32_t>() : delivered_});
}

EndRecord SessionCore::RecordOf(SessionOutcome outcome, const absl::Status& status) const {
  const auto tokens = static_cast<uint32_t>(delivered_.size());
  return {.outcome = outcome,
          .prompt_tokens = request_.prompt_tokens,
          .tokens = tokens,
          .work_tokens = ran_ ? uint64_t{request_.prompt_tokens} + tokens : 0,
          .digest = TokensDigest(delivered_),
          .kind = FailureKindOf(status),
          .detail = Text(status).substr(0, kDetailBytesMax)};
}

void SessionCore::SendEnd(const absl::Status& status, Instant now) {
  shared_.actions->end.push_back(
      {.request = request_.request,
       .client = *client_,
       .key = key_,
       .status = status,
       .result = status.ok() ? result_ : RunResult(),
       .ttft = first_token_at_ ? *first_token_at_ - arrived_at_ : absl::ZeroDuration(),
       .total = now - arrived_at_});
  client_.reset();
}

void SessionCore::Retire(SessionOutcome outcome) {
  over_ = true;
  switch (outcome) {
    case SessionOutcome::kCompleted:
      ++shared_.stats->completed;
      return;
    case SessionOutcome::kCancelled:
      ++shared_.stats->cancelled;
      return;
    case SessionOutcome::kExpired:
      ++shared_.stats->expired;
      return;
    case SessionOutcome::kFailed:
    case SessionOutcome::kFenced:
    case SessionOutcome::kUnverified:
      ++(key_ ? shared_.stats->failed : shared_.stats->refused);
      return;
  }
}

void SessionCore::OnTick(Instant now) {
  if (over_) return;
  if (!ending_) TickRunning(now);
  if (!ending_ || over_) return;
  if (client_ && now >= end_by_) {
    SendEnd(!ending_->status.ok()
                ? ending_->status
                : Complete(MakeFailure(FailureKind::kUncertain,
                                       "the answer is complete, but its record could not be "
                                       "written in time; ask again with this session")),
            now);
  }
  if (phase_ == Phase::kFinishing && !finish_out_ && now >= finish_at_) SendFinish();
}

void SessionCore::TickRunning(Instant now) {
  if (phase_ == Phase::kClassifying && now >= phase_until_) {
    FailAttempt(suspicion_, now);
  } else if (now >= deadline_) {
    const std::string doing = phase_ == Phase::kRunning
                                  ? absl::StrCat("after ", delivered_.size(), " tokens")
                                  : absl::StrCat("while ", std::string(PhaseName()));
    FailAttempt(Complete(MakeFailure(
                    FailureKind::kDeadlineExceeded,
                    absl::StrCat("the deadline of ", Seconds(request_.budget), " passed ", doing,
                                 failure_.ok() ? std::string()
                                               : absl::StrCat("; before that: ", Text(failure_))))),
                now);
  } else if (phase_ == Phase::kOpening && now >= phase_until_) {
    const auto first = std::find(opened_.begin(), opened_.end(), false) - opened_.begin();
    for (size_t i = 0; i < opened_.size(); ++i) {
      if (!opened_[i]) suspects_.nodes.push_back(route_.stages[i].peer());
    }
    FailAttempt(
        Blame(route_.stages[static_cast<size_t>(first)], FailureKind::kHeartbeatLost,
              absl::StrCat("no answer to open for ", Seconds(shared_.options->open_timeout))),
        now);
  } else if (phase_ == Phase::kWaiting && now >= ask_at_) {
    TryAgain(now);
  }
}

Instant SessionCore::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  if (over_) return wake;
  if (ending_) {
    if (client_) wake = end_by_;
    if (phase_ == Phase::kFinishing && !finish_out_) wake = std::min(wake, finish_at_);
    return wake;
  }
  wake = deadline_;
  if (phase_ == Phase::kOpening || phase_ == Phase::kClassifying) {
    wake = std::min(wake, phase_until_);
  }
  if (phase_ == Phase::kWaiting) wake = std::min(wake, ask_at_);
  return wake;
}

bool SessionCore::RunsThrough(const NodeId& node) const {
  return opens_sent_ && !closed_ && StageOf(node) != nullptr;
}

bool SessionCore::LivesOn(const NodeId& node, Incarnation incarnation) const {
  return opens_sent_ && !closed_ &&
         std::any_of(route_.stages.begin(), route_.stages.end(), [&](const RouteStage& stage) {
           return stage.node == node && stage.incarnation == incarnation;
         });
}

SessionSummary SessionCore::Summary(Instant now) const {
  return {.request = request_.request,
          .key = key_,
          .model = model(),
          .phase = PhaseName(),
          .prompt_tokens = request_.prompt_tokens,
          .tokens = static_cast<uint32_t>(delivered_.size()),
          .attempts = attempts_,
          .age = now - arrived_at_,
          .budget = std::max(deadline_ - now, absl::ZeroDuration()),
          .route = route_.stages};
}

const RouteStage* SessionCore::StageOf(const NodeId& node) const {
  const auto found = std::find_if(route_.stages.begin(), route_.stages.end(),
                                  [&](const RouteStage& stage) { return stage.node == node; });
  return found == route_.stages.end() ? nullptr : &*found;
}

absl::Status SessionCore::Blame(const RouteStage& stage, FailureKind kind,
                                const std::string& reason) const {
  FailureDetail detail{.kind = kind, .node = stage.node, .layers = stage.layers};
  return Complete(MakeFailure(detail, absl::StrCat(StageText(stage), ": ", reason)));
}

absl::Status SessionCore::Complete(const absl::Status& status) const {
  FailureDetail detail = FailureDetailOf(status);
  if (detail.kind == FailureKind::kNone) return status;
  if (key_) {
    detail.session = key_->session;
    detail.epoch = key_->epoch;
  }
  const RouteStage* stage = detail.node.empty() ? nullptr : StageOf(detail.node);
  if (stage != nullptr && !detail.layers) detail.layers = stage->layers;
  return WithFailureDetail(status, detail);
}

std::string_view SessionCore::PhaseName() const {
  switch (phase_) {
    case Phase::kRouting:
      return "finding a route";
    case Phase::kWaiting:
      return paid_ ? "waiting for a route" : "waiting for its turn to restart";
    case Phase::kQueued:
      return "waiting in the queue";
    case Phase::kGranting:
      return "granting";
    case Phase::kOpening:
      return "opening";
    case Phase::kRunning:
      return "running";
    case Phase::kClassifying:
      return "finding the culprit";
    case Phase::kFinishing:
      return "finishing";
  }
  return "unknown";
}

}  // namespace shardline
