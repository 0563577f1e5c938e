// The events of a head: what comes in, and what each of them sets going.

#include "node/rounds/head_core.h"

#include <utility>

#include "base/check.h"
#include "base/planted_bug.h"

namespace shardline {
namespace {

const std::vector<absl::Status>& Spares() {
  static const std::vector<absl::Status>& spares = *[] {
    auto* made = new std::vector<absl::Status>();
    for (int32_t kind = 0; kind < kFailureKindCount; ++kind) {
      const auto known = kind == 0 ? FailureKind::kCancelled : static_cast<FailureKind>(kind);
      made->push_back(MakeFailure(known, "the attempt ended; no memory was left to say more"));
    }
    return made;
  }();
  return spares;
}

}  // namespace

HeadCore::HeadCore(HeadOptions options)
    : options_(std::move(options)),
      spares_(Spares()),
      admission_({.queue_max = options_.queue_max,
                  .tenant_queue_max = options_.tenant_queue_max,
                  .tenant_running_max = options_.tenant_running_max}),
      slots_(options_.attempts_max),
      lap_times_(options_.step_timeout_min, options_.step_timeout_max) {
  SL_CHECK(options_.vocab_size > 0);
  SL_CHECK(options_.hidden_dim > 0);
  SL_CHECK(options_.context_tokens_max > 0);
  SL_CHECK(options_.chunk_tokens_max > 0);
  SL_CHECK(options_.chunks_in_flight > 0);
  SL_CHECK(options_.chunks_in_flight <= static_cast<int32_t>(kStepsInFlightMax));
  SL_CHECK(options_.piece_tokens_decoding > 0);
  SL_CHECK(options_.piece_tokens_idle > 0);
  SL_CHECK(options_.bundle_rows_max > 0);
  SL_CHECK(options_.bundle_tokens_max > 0);
  SL_CHECK(options_.samples_max > 0);
}

HeadActions HeadCore::TakeActions() {
  if (actions_.empty()) return {};
  return std::exchange(actions_, {});
}

size_t HeadCore::rounds_in_flight() const {
  size_t count = 0;
  for (const auto& [ring, lane] : lanes_) count += lane.rounds_in_flight();
  return count;
}

void HeadCore::OnReturn(StageBundle bundle, Instant now) {
  EndOverdue(now);
  int64_t hidden_row = 0;
  for (size_t i = 0; i < bundle.rows.size(); ++i) {
    TakeReturn(bundle, i, hidden_row, now);
    hidden_row += bundle.rows[i].token_count;
  }
  Advance(now);
}

void HeadCore::OnComputeDone(ComputeDone done, Instant now) {
  if (finish_job_ != done.id) return;
  finish_job_.reset();
  for (const Drawn& drawn : drawn_) slots_.Done(drawn.lease);
  EndOverdue(now);
  // The device is not trusted with our memory: an answer of another shape is a lost device.
  if (done.status.ok() && done.samples.size() != drawn_.size()) {
    done.status =
        MakeFailure(FailureKind::kDeviceLost, "the answer has another shape than the job");
  }
  for (size_t i = 0; i < drawn_.size(); ++i) {
    SampleResult result = done.status.ok()
                              ? std::move(done.samples[i])
                              : SampleResult{.key = drawn_[i].key, .status = done.status};
    TakeResult(drawn_[i], std::move(result), done.compute_time, now);
  }
  Advance(now);
}

void HeadCore::OnLayersComputed(const StepKey& key, absl::Duration compute_time, Instant /*now*/) {
  const auto it = attempts_.find(key.attempt);
  if (it == attempts_.end()) return;
  for (HeadFlight& flight : it->second.flights) {
    if (flight.step != key.step) continue;
    flight.own_layers_done = true;
    if (!flight.is_piece()) it->second.timings.head_compute += compute_time;
  }
}

void HeadCore::OnCancel(const AttemptKey& key, Instant now) {
  const auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  End(it, FailOrSpare(FailureKind::kCancelled, key, "cancelled"));
  Advance(now);
}

void HeadCore::OnFence(SessionId session, Epoch epoch, FailureKind kind, Instant now) {
  if (kind == FailureKind::kNone) kind = FailureKind::kCancelled;
  auto it = attempts_.lower_bound({.session = session, .epoch = Epoch()});
  while (it != attempts_.end() && it->first.session == session && it->first.epoch <= epoch) {
    const auto fenced = it++;
    End(fenced, FailOrSpare(kind, fenced->first, "fenced"));
  }
  Advance(now);
}

void HeadCore::Drain(const absl::Status& reason, Instant deadline, Instant now) {
  SL_CHECK(!reason.ok());
  drain_ = {.reason = reason, .deadline = deadline};
  OnTick(now);
}

void HeadCore::Halt(const absl::Status& reason, Instant /*now*/) {
  SL_CHECK(!reason.ok());
  halted_ = reason;
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const auto attempt = it++;
    if (!attempt->second.lease && Planted(PlantedBug::kHaltForgetsQueued)) continue;
    End(attempt, reason);
  }
  finishes_.clear();
  actions_.steps.clear();
}

void HeadCore::OnTick(Instant now) {
  if (drain_ && drain_->deadline <= now && !attempts_.empty()) Halt(drain_->reason, now);
  EndOverdue(now);
  SendAgain(now);
  Advance(now);
}

Instant HeadCore::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [key, attempt] : attempts_) {
    wake = std::min(wake, WakeOf(attempt));
    if (attempt.resend_at) wake = std::min(wake, *attempt.resend_at);
  }
  if (drain_ && !attempts_.empty()) wake = std::min(wake, drain_->deadline);
  return wake;
}

}  // namespace shardline
