// How attempts begin and end at a head: checks, slots, failures, deadlines, step timers.

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "node/rounds/head_core.h"

namespace shardline {
namespace {

std::string NameOf(const RouteStage& stage, size_t index) {
  return absl::StrCat("stage ", index, " (node ", stage.node.value(), ", ", stage.layers.ToString(),
                      ")");
}

bool IsInFlight(const HeadAttempt& attempt, StepIndex step) {
  return std::any_of(attempt.flights.begin(), attempt.flights.end(),
                     [&](const HeadFlight& flight) { return flight.step == step; });
}

}  // namespace

absl::Status HeadCore::Fail(FailureKind kind, const AttemptKey& key, const std::string& message,
                            bool blame_self) const {
  FailureDetail detail{.kind = kind, .session = key.session, .epoch = key.epoch};
  if (kind == FailureKind::kOverloaded) detail.retry_after = options_.retry_after;
  if (blame_self) {
    detail.node = options_.node;
    detail.layers = options_.layers;
  }
  return MakeFailure(detail, absl::StrCat("session ", key.session.value(), " epoch ",
                                          key.epoch.value(), ": ", message));
}

// For ends that must not be lost although no memory is left to word them.
absl::Status HeadCore::FailOrSpare(FailureKind kind, const AttemptKey& key,
                                   const char* message) const {
  try {
    return Fail(kind, key, message);
  } catch (const std::bad_alloc&) {
    return spares_[static_cast<size_t>(kind)];
  }
}

absl::Status HeadCore::CheckRun(const RunAttempt& run) const {
  const auto invalid = [&](const std::string& message) {
    return Fail(FailureKind::kInvalidRequest, run.key, message);
  };
  if (run.prompt.empty()) return invalid("the prompt has no tokens");
  for (const std::vector<int32_t>* tokens : {&run.prompt, &run.delivered}) {
    for (const int32_t token : *tokens) {
      if (token < 0 || token >= options_.vocab_size) {
        return invalid(
            absl::StrCat("token ", token, " is not in the vocabulary of ", options_.vocab_size));
      }
    }
  }
  if (run.new_tokens_max < 1) {
    return invalid(absl::StrCat("new_tokens_max is ", run.new_tokens_max));
  }
  if (run.route.empty()) return invalid("the route has no stages");
  const int32_t limit = std::min(options_.context_tokens_max, run.tokens_max);
  const size_t prefix = run.prompt.size() + run.delivered.size();
  if (limit < 1 || prefix > static_cast<size_t>(limit)) {
    return invalid(absl::StrCat(prefix, " tokens of prompt and prefix exceed the ", limit,
                                " that the attempt has room for"));
  }
  if (run.cached_tokens < 0 || run.cached_tokens % kPageTokens != 0 ||
      static_cast<size_t>(run.cached_tokens) >= prefix) {
    return invalid(absl::StrCat(run.cached_tokens, " cached tokens are not whole pages of less ",
                                "than the ", prefix, " of prompt and prefix"));
  }
  if (!run.rules.empty() && options_.vocabulary == nullptr) {
    return invalid("its text has rules, and this node knows no vocabulary of the model");
  }
  return ValidateSampling(run.sampling, options_.vocab_size);
}

absl::Status HeadCore::Judge(const RunAttempt& run) const {
  SL_RETURN_IF_ERROR(halted_);
  if (drain_) return Fail(FailureKind::kOverloaded, run.key, "the node is draining");
  if (attempts_.contains(run.key)) {
    return Fail(FailureKind::kStepConflict, run.key, "the attempt already runs");
  }
  SL_RETURN_IF_ERROR(CheckRun(run));
  if (run.budget <= absl::ZeroDuration()) {
    return Fail(FailureKind::kDeadlineExceeded, run.key, "no budget left");
  }
  const SlotAdmission::Judgement judgement = admission_.Judge(run.tenant, slots_.free_count());
  if (judgement.verdict == AdmissionVerdict::kRefuse) {
    return Fail(FailureKind::kOverloaded, run.key, judgement.shortage);
  }
  return absl::OkStatus();
}

absl::Status HeadCore::OnRun(RunAttempt run, Instant now) {
  if (absl::Status status = Judge(run); !status.ok()) {
    ++stats_.attempts_refused;
    ++stats_.refusals[static_cast<size_t>(FailureKindOf(status))];
    return status;
  }
  const auto it = Begin(std::move(run), now);
  const HeadAttempt& attempt = it->second;
  // What an older attempt generated may be all there is to say.
  if (attempt.sampler->finished()) {
    End(it, absl::OkStatus(), FinishReason::kStop);
  } else if (attempt.generated >= static_cast<uint32_t>(attempt.run.new_tokens_max)) {
    End(it, absl::OkStatus(), FinishReason::kLength);
  }
  Advance(now);
  return absl::OkStatus();
}

// What needs memory comes first: an attempt is known whole, or not at all.
HeadCore::Attempts::iterator HeadCore::Begin(RunAttempt run, Instant now) {
  Attempts made;
  const AttemptKey key = run.key;
  HeadAttempt& attempt = made[key];
  FillIn(attempt, std::move(run), now);
  FindLane(attempt);
  const std::string& tenant = attempt.run.tenant;
  const AdmissionVerdict verdict = admission_.Judge(tenant, slots_.free_count()).verdict;
  admission_.Enqueue(key, tenant);
  HeadLane& lane = attempt.lane->second;
  lane.rounds_in_flight_max = std::clamp(attempt.run.rounds_in_flight, 1, kLaneRoundsMax);
  ++lane.attempts;
  ++attempt.tenant->attempts;
  ++stats_.attempts_started;
  if (verdict == AdmissionVerdict::kWait) ++stats_.attempts_waited;
  if (verdict == AdmissionVerdict::kSkip) ++stats_.attempts_skipped;
  return attempts_.insert(made.extract(made.begin())).position;
}

void HeadCore::FillIn(HeadAttempt& attempt, RunAttempt run, Instant now) const {
  attempt.end.push_back({.key = run.key});
  attempt.spot.push_back(&attempt);
  attempt.node = attempt.spot.begin();
  std::unique_ptr<RowPolicy> policy;
  if (!run.rules.empty()) {
    policy = MakeTextRulesPolicy(run.rules, options_.vocabulary, run.stop_tokens);
  }
  attempt.sampler = std::make_shared<Sampler>(run.sampling, options_.vocab_size, run.prompt,
                                              run.delivered, std::move(policy));
  attempt.drafter = MakeDrafter(run);
  attempt.prompt_count = static_cast<int32_t>(run.prompt.size());
  attempt.generated = static_cast<uint32_t>(run.delivered.size());
  attempt.prefix_count = attempt.prompt_count + static_cast<int32_t>(run.delivered.size());
  attempt.tokens = std::move(run.prompt);
  attempt.tokens.insert(attempt.tokens.end(), run.delivered.begin(), run.delivered.end());
  run.delivered.clear();
  attempt.arrived = now;
  attempt.progress = now;
  attempt.deadline = now + run.budget;
  attempt.tokens_limit = std::min(options_.context_tokens_max, run.tokens_max);
  attempt.sent = run.cached_tokens;
  attempt.chain = run.prefix_root;
  // One token of the prefix is always left to compute, so its page is not among OPEN's.
  attempt.open_pages = (attempt.prefix_count - 1) / kPageTokens;
  attempt.run = std::move(run);
}

void HeadCore::FindLane(HeadAttempt& attempt) {
  std::vector<StagePeer> ring;
  ring.reserve(attempt.run.route.size());
  for (const RouteStage& stage : attempt.run.route) ring.push_back(stage.peer());
  const auto [lane, is_new] = lanes_.try_emplace(std::move(ring));
  if (is_new) lane->second.id = lane_next_++;
  attempt.lane = lane;
  attempt.tenant = &lane->second.tenants[attempt.run.tenant];
}

// Gives free slots to those who wait for one.
void HeadCore::Admit(Instant now) {
  while (const std::optional<AttemptKey> key = admission_.TakeNext(slots_.free_count())) {
    HeadAttempt& attempt = attempts_.find(*key)->second;
    attempt.lease = slots_.Lease(std::move(attempt.sampler));
    attempt.admitted = now;
    attempt.progress = now;
    attempt.timings.queued = now - attempt.arrived;
    Move(attempt, attempt.tenant->filling);
    DropStage(attempt.lane->second);
  }
}

// The one place where an attempt ends. Needs no memory.
// What few laps told of each stage becomes its share of all of them.
void HeadCore::SpreadOverStages(RunTimings& timings) {
  absl::Duration told;
  for (const absl::Duration time : timings.by_stage) told += time;
  if (told <= absl::ZeroDuration()) return timings.by_stage.clear();
  const double scale = absl::FDivDuration(timings.stage_compute, told);
  for (absl::Duration& time : timings.by_stage) time *= scale;
}

void HeadCore::End(Attempts::iterator it, const absl::Status& status, FinishReason reason,
                   int32_t stop_token) {
  HeadAttempt& attempt = it->second;
  DropStageOf(attempt);
  if (attempt.is_decoding) attempt.timings.decode = attempt.last_token - attempt.first_token;
  ++stats_.attempts_ended;
  if (!status.ok()) ++stats_.attempts_failed;
  AttemptEnd& end = attempt.end.front();
  end.status = status;
  end.reason = reason;
  end.tokens = attempt.generated;
  end.stop_token = stop_token;
  end.timings = std::move(attempt.timings);  // A copy would need memory.
  SpreadOverStages(end.timings);
  actions_.ends.splice(actions_.ends.end(), attempt.end);
  LeaveLane(attempt);
  if (attempt.lease) {
    slots_.GiveBack(*attempt.lease);
    admission_.LeaveSlot(attempt.run.tenant);
  } else {
    admission_.LeaveQueue(it->first, attempt.run.tenant);
  }
  attempts_.erase(it);
}

void HeadCore::LeaveLane(HeadAttempt& attempt) {
  HeadLane& lane = attempt.lane->second;
  for (const HeadFlight& flight : attempt.flights) LeaveRing(lane, flight);
  if (attempt.finishing) LeaveSampling(lane, *attempt.finishing, /*is_sampled=*/false);
  Move(attempt, attempt.spot);
  if (attempt.is_decoding) --lane.decoding;
  if (--attempt.tenant->attempts == 0) lane.tenants.erase(lane.tenants.find(attempt.run.tenant));
  if (--lane.attempts == 0) lanes_.erase(attempt.lane);
}

void HeadCore::OnRowFailure(const RowFailure& failure, Instant now) {
  EndOverdue(now);
  const auto it = attempts_.find(failure.key.attempt);
  const FailureKind kind = FailureKindOf(failure.status);
  // A copy of a step that computes does no harm, and neither does one of a step long done; but
  // other content under a known key means that somebody lies.
  const bool is_harmless =
      kind == FailureKind::kStepInFlight && !Planted(PlantedBug::kCopyEndsTheOriginal);
  const bool matters =
      it != attempts_.end() && !is_harmless &&
      (kind == FailureKind::kStepConflict || IsInFlight(it->second, failure.key.step));
  if (!matters) {
    ++stats_.failures_ignored;
    return;
  }
  if (SendsAgain(it->second, failure, now)) return Advance(now);
  if (Planted(PlantedBug::kPieceFailureRepeats)) return TellAndGoOn(it->second, failure, now);
  End(it, failure.status.ok()
              ? Fail(FailureKind::kUncertain, failure.key.attempt, "a step failed without a reason")
              : failure.status);
  Advance(now);
}

// Of a planted bug: the request hears of its failed piece, and the rest of it runs.
void HeadCore::TellAndGoOn(HeadAttempt& attempt, const RowFailure& failure, Instant now) {
  actions_.ends.push_back({.key = failure.key.attempt, .status = failure.status});
  for (auto flight = attempt.flights.begin(); flight != attempt.flights.end(); ++flight) {
    if (flight->step != failure.key.step) continue;
    LeaveRing(attempt.lane->second, *flight);
    attempt.flights.erase(flight);
    break;
  }
  Advance(now);
}

// True if the failure is one of steps that overtook the OPEN of a later stage, and is mended by
// sending them again: that stage does not know the attempt, and of what came after the first of
// them it says that there is a gap. Either word may be lost, or come late.
bool HeadCore::SendsAgain(HeadAttempt& attempt, const RowFailure& failure, Instant now) {
  const FailureKind kind = FailureKindOf(failure.status);
  const bool is_late = kind == FailureKind::kStepConflict &&
                       (attempt.resend_at.has_value() || failure.key.step < attempt.resent_below);
  if (is_late) {
    ++stats_.failures_ignored;
    return true;
  }
  // A decode step follows an answer to all before it, so every stage knows the attempt by then.
  if (attempt.flights.empty() || !attempt.flights.front().is_piece()) return false;
  const bool is_gap =
      kind == FailureKind::kStepConflict && failure.key.step > attempt.flights.front().step;
  const bool is_miss =
      kind == FailureKind::kCacheMiss && FailureDetailOf(failure.status).node != options_.node;
  if (!is_gap && !is_miss) return false;
  if (attempt.resend_at) return true;
  if (attempt.resends >= options_.resends_max) return false;
  DropStageOf(attempt);
  // Meanwhile no round waits for its steps.
  for (HeadFlight& flight : attempt.flights) {
    LeaveRing(attempt.lane->second, flight);
    flight.walk = 0;
  }
  attempt.resend_at = now + options_.resend_pause * (1 << attempt.resends);
  ++attempt.resends;
  return true;
}

void HeadCore::EndOverdue(Instant now) {
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const auto attempt = it++;
    if (WakeOf(attempt->second) > now) continue;
    if (attempt->second.deadline <= now) {
      End(attempt, Fail(FailureKind::kDeadlineExceeded, attempt->first,
                        attempt->second.lease ? "the budget of the attempt ended"
                                              : "its budget ended before its turn came"));
      continue;
    }
    ++stats_.step_timeouts;
    End(attempt, TimedOut(attempt->second));
  }
}

Instant HeadCore::WakeOf(const HeadAttempt& attempt) const {
  const bool is_waiting = attempt.finishing.has_value() || !attempt.flights.empty();
  if (!is_waiting) return attempt.deadline;
  Instant since = attempt.progress;
  if (!attempt.finishing) since = std::max(since, attempt.flights.front().sent);
  return std::min(attempt.deadline, since + TimeoutOf(attempt));
}

// A step waits its turn at every stage behind the pieces that were sent before it.
absl::Duration HeadCore::TimeoutOf(const HeadAttempt& attempt) const {
  if (attempt.finishing) return options_.step_timeout_max * (1 + piece_rounds_);
  const HeadFlight& flight = attempt.flights.front();
  return lap_times_.TimeoutOf(flight.round_tokens) * (1 + flight.piece_rounds_ahead);
}

// Names the stages that may hold the step, and blames the first of them.
absl::Status HeadCore::TimedOut(const HeadAttempt& attempt) const {
  const std::vector<RouteStage>& route = attempt.run.route;
  const bool is_here = attempt.finishing.has_value() || route.size() == 1 ||
                       !attempt.flights.front().own_layers_done;
  const StepIndex step = attempt.finishing ? attempt.finishing->step : attempt.flights.front().step;
  std::vector<std::string> suspects;
  if (is_here) {
    suspects.push_back(NameOf(route[0], 0));
  } else {
    for (size_t i = 1; i < route.size(); ++i) suspects.push_back(NameOf(route[i], i));
  }
  const RouteStage& suspect = is_here ? route[0] : route[1];
  const FailureDetail detail{.kind = FailureKind::kStreamReset,
                             .session = attempt.run.key.session,
                             .epoch = attempt.run.key.epoch,
                             .step = step,
                             .node = suspect.node,
                             .layers = suspect.layers};
  return MakeFailure(detail,
                     absl::StrCat("session ", attempt.run.key.session.value(), " epoch ",
                                  attempt.run.key.epoch.value(), ": step ", step.value(),
                                  " was not answered in ", absl::FormatDuration(TimeoutOf(attempt)),
                                  "; it may be held by ", absl::StrJoin(suspects, " or ")));
}

}  // namespace shardline
