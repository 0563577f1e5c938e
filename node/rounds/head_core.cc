// What the head sends, takes back and samples.

#include "node/rounds/head_core.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "node/stage/step_ledger.h"

namespace shardline {

HeadCore::HeadCore(HeadOptions options)
    : options_(std::move(options)),
      lap_times_(options_.step_timeout_min, options_.step_timeout_max) {
  SL_CHECK(options_.vocab_size > 0);
  SL_CHECK(options_.hidden_dim > 0);
  SL_CHECK(options_.context_tokens_max > 0);
  SL_CHECK(options_.chunk_tokens_max > 0);
  SL_CHECK(options_.chunks_in_flight > 0);
  SL_CHECK(options_.chunks_in_flight <= static_cast<int32_t>(kStepsInFlightMax));
  SL_CHECK(options_.prefill_chunks_max > 0);
  SL_CHECK(options_.attempts_max > 0);
  SL_CHECK(options_.bundle_rows_max > 0);
  SL_CHECK(options_.samples_max > 0);
}

HeadActions HeadCore::TakeActions() {
  if (actions_.empty()) return {};
  return std::exchange(actions_, {});
}

void HeadCore::SendStep(Attempt& attempt, std::span<const int32_t> tokens, bool wants_logits,
                        bool is_prefill, Instant now) {
  const StepKey key{.attempt = attempt.run.key, .step = StepIndex(attempt.step_next++)};
  const auto token_count = static_cast<int32_t>(tokens.size());
  attempt.flights[key.step] = {.sent = now,
                               .position = attempt.sent,
                               .token_count = token_count,
                               .wants_logits = wants_logits,
                               .is_prefill = is_prefill,
                               .chunks_ahead = chunks_in_flight_};
  PutStep(key, tokens, attempt.flights[key.step], attempt.deadline - now);
  attempt.sent += token_count;
  ++stats_.steps_sent;
}

void HeadCore::PutStep(const StepKey& key, std::span<const int32_t> tokens, const Flight& flight,
                       absl::Duration budget) {
  if (outgoing_.rows.size() >= options_.bundle_rows_max) FlushSteps();
  outgoing_.rows.push_back({.key = key,
                            .position = flight.position,
                            .token_count = flight.token_count,
                            .hop = 0,
                            .budget = budget,
                            .flags = flight.wants_logits ? kRowWantsLogits : 0});
  outgoing_.tokens.insert(outgoing_.tokens.end(), tokens.begin(), tokens.end());
}

void HeadCore::FlushSteps() {
  if (!outgoing_.rows.empty()) actions_.steps.push_back(std::exchange(outgoing_, {}));
}

void HeadCore::SendChunk(Attempt& attempt, Instant now) {
  const std::span<const int32_t> left =
      std::span<const int32_t>(attempt.prefix).subspan(static_cast<size_t>(attempt.sent));
  const size_t count = std::min(left.size(), static_cast<size_t>(options_.chunk_tokens_max));
  SendStep(attempt, left.first(count), count == left.size(), true, now);
  ++chunks_in_flight_;
}

// One chunk an attempt, in turn, until the ring holds enough of them or nobody may send.
void HeadCore::SendChunks(Instant now) {
  size_t passed_over = 0;
  while (chunks_in_flight_ < options_.prefill_chunks_max && passed_over < filling_.size()) {
    const AttemptKey key = filling_.front();
    filling_.pop_front();
    Attempt& attempt = attempts_.find(key)->second;
    if (attempt.flights.size() < static_cast<size_t>(options_.chunks_in_flight)) {
      SendChunk(attempt, now);
      passed_over = 0;
    } else {
      ++passed_over;
    }
    if (static_cast<size_t>(attempt.sent) < attempt.prefix.size()) filling_.push_back(key);
  }
}

void HeadCore::OnReturn(StageBundle bundle, Instant now) {
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  SL_CHECK(bundle.hidden != nullptr);
  SL_CHECK(bundle.hidden->size() == bundle.rows.size() * token_bytes);
  EndOverdue(now);
  for (size_t i = 0; i < bundle.rows.size(); ++i) {
    const BundleRow& row = bundle.rows[i];
    const auto it = attempts_.find(row.key.attempt);
    if (it == attempts_.end() || !it->second.flights.contains(row.key.step)) {
      ++stats_.returns_ignored;
      continue;
    }
    Attempt& attempt = it->second;
    const Flight flight = attempt.flights[row.key.step];
    if (row.position != flight.position + flight.token_count - 1) {
      End(it, Fail(FailureKind::kStepConflict, row.key.attempt,
                   absl::StrCat("step ", row.key.step.value(), " came back at position ",
                                row.position)));
      continue;
    }
    attempt.flights.erase(row.key.step);
    attempt.progress = now;
    lap_times_.Add(flight.token_count, now - flight.sent);
    if (flight.is_prefill) {
      --chunks_in_flight_;
    } else {
      ++attempt.timings.laps;
      attempt.timings.lap_time += now - flight.sent;
      attempt.timings.stage_compute += row.compute;
    }
    // What the row itself says of logits is a stranger's word; what was asked for counts.
    if (!flight.wants_logits) continue;
    attempt.finishing = row.key.step;
    attempt.finish_is_decode = !flight.is_prefill;
    finishes_.push_back({.key = row.key, .hidden = bundle.hidden, .row = static_cast<int64_t>(i)});
  }
  StartFinish();
  SendChunks(now);
  FlushSteps();
}

// Gives the device the rows that came back while it was busy with the last ones.
void HeadCore::StartFinish() {
  if (finish_job_) return;
  std::vector<Finish> picked;
  while (!finishes_.empty() && picked.size() < options_.samples_max) {
    const auto it = attempts_.find(finishes_.front().key.attempt);
    if (it != attempts_.end() && it->second.finishing == finishes_.front().key.step) {
      picked.push_back(std::move(finishes_.front()));
    }
    finishes_.pop_front();
  }
  if (picked.empty()) return;
  const bool is_one_buffer = std::all_of(picked.begin(), picked.end(), [&](const Finish& finish) {
    return finish.hidden == picked.front().hidden;
  });
  ComputeJob job{.id = job_id_next_++, .kind = JobKind::kFinish};
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  if (is_one_buffer) {
    job.hidden = picked.front().hidden;
  } else {
    const std::shared_ptr<Buffer> gathered = Buffer::Allocate(picked.size() * token_bytes);
    for (size_t i = 0; i < picked.size(); ++i) {
      std::memcpy(gathered->data() + i * token_bytes,
                  picked[i].hidden->data() + static_cast<size_t>(picked[i].row) * token_bytes,
                  token_bytes);
      picked[i].row = static_cast<int64_t>(i);
    }
    job.hidden = gathered;
  }
  finish_keys_.clear();
  for (const Finish& finish : picked) {
    const Attempt& attempt = attempts_.find(finish.key.attempt)->second;
    finish_keys_.push_back(finish.key);
    job.samples.push_back({.key = finish.key,
                           .row = static_cast<int32_t>(finish.row),
                           .index = attempt.generated,
                           .sampler = attempt.sampler});
  }
  finish_job_ = job.id;
  actions_.jobs.push_back(std::move(job));
}

void HeadCore::OnComputeDone(ComputeDone done, Instant now) {
  if (finish_job_ != done.id) return;
  finish_job_.reset();
  EndOverdue(now);
  // The device is not trusted with our memory: an answer of another shape is a lost device.
  if (done.status.ok() && done.samples.size() != finish_keys_.size()) {
    done.status =
        MakeFailure(FailureKind::kDeviceLost, "the answer has another shape than the job");
  }
  for (size_t i = 0; i < finish_keys_.size(); ++i) {
    SampleResult result = done.status.ok()
                              ? std::move(done.samples[i])
                              : SampleResult{.key = finish_keys_[i], .status = done.status};
    TakeResult(finish_keys_[i], std::move(result), done.compute_time, now);
  }
  StartFinish();
  SendChunks(now);
  FlushSteps();
}

void HeadCore::TakeResult(const StepKey& key, SampleResult result, absl::Duration compute_time,
                          Instant now) {
  const auto it = attempts_.find(key.attempt);
  if (it == attempts_.end() || it->second.finishing != key.step) return;
  Attempt& attempt = it->second;
  attempt.finishing.reset();
  attempt.progress = now;
  if (attempt.finish_is_decode) attempt.timings.head_compute += compute_time;
  if (result.status.ok() && result.tokens.empty()) {
    result.status = MakeFailure(FailureKind::kDeviceLost, "the answer has no token");
  }
  if (!result.status.ok()) {
    const FailureKind kind = FailureKindOf(result.status);
    End(it, Fail(kind == FailureKind::kNone ? FailureKind::kDeviceLost : kind, key.attempt,
                 absl::StrCat("step ", key.step.value(), " at the head, node ",
                              options_.node.value(), ": ", result.status.message()),
                 /*blame_self=*/true));
    return;
  }
  if (!attempt.first_token) {
    attempt.first_token = now;
    attempt.timings.prefill = now - attempt.started;
  }
  attempt.last_token = now;
  ++stats_.tokens_sampled;
  const int32_t token = result.tokens.front().token;
  const std::vector<int32_t>& stops = attempt.run.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    End(it, absl::OkStatus(), FinishReason::kStop, token);
    return;
  }
  actions_.tokens.push_back(
      {.key = key.attempt, .index = attempt.generated, .token = std::move(result.tokens.front())});
  ++attempt.generated;
  if (attempt.generated >= static_cast<uint32_t>(attempt.run.new_tokens_max) ||
      attempt.sent >= attempt.tokens_limit) {
    End(it, absl::OkStatus(), FinishReason::kLength);
    return;
  }
  SendStep(attempt, std::span<const int32_t>(&token, 1), true, false, now);
}

void HeadCore::OnLayersComputed(const StepKey& key, absl::Duration compute_time, Instant /*now*/) {
  const auto it = attempts_.find(key.attempt);
  if (it == attempts_.end()) return;
  const auto flight = it->second.flights.find(key.step);
  if (flight == it->second.flights.end()) return;
  flight->second.own_layers_done = true;
  if (!flight->second.is_prefill) it->second.timings.head_compute += compute_time;
}

}  // namespace shardline
