// How attempts begin and end at the head: checks, deadlines, step timers, cancels, halts.

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "node/rounds/head_core.h"

namespace shardline {
namespace {

std::string NameOf(const RouteStage& stage, size_t index) {
  return absl::StrCat("stage ", index, " (node ", stage.node.value(), ", ", stage.layers.ToString(),
                      ")");
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
  return ValidateSampling(run.sampling, options_.vocab_size);
}

absl::Status HeadCore::OnRun(RunAttempt run, Instant now) {
  const AttemptKey key = run.key;
  const auto check = [&]() -> absl::Status {
    SL_RETURN_IF_ERROR(halted_);
    if (attempts_.contains(key)) {
      return Fail(FailureKind::kStepConflict, key, "the attempt already runs");
    }
    SL_RETURN_IF_ERROR(CheckRun(run));
    if (run.budget <= absl::ZeroDuration()) {
      return Fail(FailureKind::kDeadlineExceeded, key, "no budget left");
    }
    if (attempts_.size() >= options_.attempts_max) {
      return Fail(FailureKind::kOverloaded, key,
                  absl::StrCat(attempts_.size(), " attempts run, the most there may be"));
    }
    return absl::OkStatus();
  };
  if (absl::Status status = check(); !status.ok()) {
    ++stats_.attempts_refused;
    return status;
  }

  Attempt attempt;
  attempt.prefix = run.prompt;
  attempt.prefix.insert(attempt.prefix.end(), run.delivered.begin(), run.delivered.end());
  attempt.sampler =
      std::make_shared<Sampler>(run.sampling, options_.vocab_size, run.prompt, run.delivered);
  attempt.started = now;
  attempt.progress = now;
  attempt.deadline = now + run.budget;
  attempt.tokens_limit = std::min(options_.context_tokens_max, run.tokens_max);
  attempt.generated = static_cast<uint32_t>(run.delivered.size());
  const bool has_all = run.delivered.size() >= static_cast<size_t>(run.new_tokens_max);
  attempt.run = std::move(run);
  const auto it = attempts_.emplace(key, std::move(attempt)).first;
  ++stats_.attempts_started;
  if (has_all) {
    End(it, absl::OkStatus(), FinishReason::kLength);
    return absl::OkStatus();
  }
  filling_.push_back(key);
  SendChunks(now);
  FlushSteps();
  return absl::OkStatus();
}

// The one place where an attempt ends.
void HeadCore::End(Attempts::iterator it, absl::Status status, FinishReason reason,
                   int32_t stop_token) {
  Attempt& attempt = it->second;
  for (const auto& [step, flight] : attempt.flights) {
    if (flight.is_prefill) --chunks_in_flight_;
  }
  filling_.erase(std::remove(filling_.begin(), filling_.end(), it->first), filling_.end());
  if (attempt.first_token) attempt.timings.decode = attempt.last_token - *attempt.first_token;
  ++stats_.attempts_ended;
  if (!status.ok()) ++stats_.attempts_failed;
  actions_.ends.push_back({.key = it->first,
                           .status = std::move(status),
                           .reason = reason,
                           .tokens = attempt.generated,
                           .stop_token = stop_token,
                           .timings = attempt.timings});
  attempts_.erase(it);
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
      (kind == FailureKind::kStepConflict || it->second.flights.contains(failure.key.step));
  if (!matters) {
    ++stats_.failures_ignored;
    return;
  }
  if (SendsAgain(it->second, failure, now)) return;
  End(it, failure.status.ok()
              ? Fail(FailureKind::kUncertain, failure.key.attempt, "a step failed without a reason")
              : failure.status);
  SendChunks(now);
  FlushSteps();
}

// True if the failure is one of steps that overtook the OPEN of a later stage, and is mended by
// sending them again: that stage does not know the attempt, and of what came after the first of
// them it says that there is a gap. Either word may be lost, or come late.
bool HeadCore::SendsAgain(Attempt& attempt, const RowFailure& failure, Instant now) {
  const FailureKind kind = FailureKindOf(failure.status);
  const bool is_late = kind == FailureKind::kStepConflict &&
                       (attempt.resend_at.has_value() || failure.key.step < attempt.resent_below);
  if (is_late) {
    ++stats_.failures_ignored;
    return true;
  }
  // A decode step follows an answer to all before it, so every stage knows the attempt by then.
  if (attempt.flights.empty() || !attempt.flights.begin()->second.is_prefill) return false;
  const bool is_gap =
      kind == FailureKind::kStepConflict && failure.key.step > attempt.flights.begin()->first;
  const bool is_miss =
      kind == FailureKind::kCacheMiss && FailureDetailOf(failure.status).node != options_.node;
  if (!is_gap && !is_miss) return false;
  if (attempt.resend_at) return true;
  if (attempt.resends >= options_.resends_max) return false;
  attempt.resend_at = now + options_.resend_pause * (1 << attempt.resends);
  ++attempt.resends;
  return true;
}

// The own stage has kept what they left behind, and passes it on once more.
void HeadCore::SendAgain(Instant now) {
  for (auto& [key, attempt] : attempts_) {
    if (!attempt.resend_at || *attempt.resend_at > now) continue;
    attempt.resend_at.reset();
    attempt.resent_below = StepIndex(attempt.step_next);
    for (auto& [step, flight] : attempt.flights) {
      if (!flight.is_prefill) continue;
      const auto tokens = std::span<const int32_t>(attempt.prefix)
                              .subspan(static_cast<size_t>(flight.position),
                                       static_cast<size_t>(flight.token_count));
      flight.sent = now;
      PutStep({.attempt = key, .step = step}, tokens, flight, attempt.deadline - now);
      ++stats_.steps_resent;
    }
  }
}

void HeadCore::OnCancel(const AttemptKey& key, Instant now) {
  const auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  End(it, Fail(FailureKind::kCancelled, key, "cancelled"));
  SendChunks(now);
  FlushSteps();
}

void HeadCore::OnFence(SessionId session, Epoch epoch, FailureKind kind, Instant now) {
  if (kind == FailureKind::kNone) kind = FailureKind::kCancelled;
  auto it = attempts_.lower_bound({.session = session, .epoch = Epoch()});
  while (it != attempts_.end() && it->first.session == session && it->first.epoch <= epoch) {
    const auto fenced = it++;
    End(fenced, Fail(kind, fenced->first, "fenced"));
  }
  SendChunks(now);
  FlushSteps();
}

void HeadCore::Halt(const absl::Status& reason, Instant /*now*/) {
  SL_CHECK(!reason.ok());
  halted_ = reason;
  while (!attempts_.empty()) End(attempts_.begin(), reason);
  finishes_.clear();
  outgoing_ = {};
}

void HeadCore::OnTick(Instant now) {
  EndOverdue(now);
  SendAgain(now);
  SendChunks(now);
  StartFinish();
  FlushSteps();
}

void HeadCore::EndOverdue(Instant now) {
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const auto attempt = it++;
    if (WakeOf(attempt->second) > now) continue;
    if (attempt->second.deadline <= now) {
      End(attempt,
          Fail(FailureKind::kDeadlineExceeded, attempt->first, "the budget of the attempt ended"));
      continue;
    }
    ++stats_.step_timeouts;
    End(attempt, TimedOut(attempt->second));
  }
}

Instant HeadCore::WakeOf(const Attempt& attempt) const {
  const bool is_waiting = attempt.finishing.has_value() || !attempt.flights.empty();
  if (!is_waiting) return attempt.deadline;
  Instant since = attempt.progress;
  if (!attempt.finishing) since = std::max(since, attempt.flights.begin()->second.sent);
  return std::min(attempt.deadline, since + TimeoutOf(attempt));
}

// A step waits its turn at every stage behind the chunks that were sent before it.
absl::Duration HeadCore::TimeoutOf(const Attempt& attempt) const {
  if (attempt.finishing) return options_.step_timeout_max * (1 + chunks_in_flight_);
  const Flight& flight = attempt.flights.begin()->second;
  return lap_times_.TimeoutOf(flight.token_count) * (1 + flight.chunks_ahead);
}

Instant HeadCore::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [key, attempt] : attempts_) {
    wake = std::min(wake, WakeOf(attempt));
    if (attempt.resend_at) wake = std::min(wake, *attempt.resend_at);
  }
  return wake;
}

// Names the stages that may hold the step, and blames the first of them.
absl::Status HeadCore::TimedOut(const Attempt& attempt) const {
  const std::vector<RouteStage>& route = attempt.run.route;
  const bool is_here = attempt.finishing.has_value() || route.size() == 1 ||
                       !attempt.flights.begin()->second.own_layers_done;
  const StepIndex step = attempt.finishing ? *attempt.finishing : attempt.flights.begin()->first;
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
