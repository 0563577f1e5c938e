// How a head takes steps back, has tokens drawn from them, and takes the tokens.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "node/rounds/head_core.h"

namespace shardline {

void HeadCore::TakeReturn(const StageBundle& bundle, size_t index, int64_t hidden_row,
                          Instant now) {
  const BundleRow& row = bundle.rows[index];
  const auto it = attempts_.find(row.key.attempt);
  if (it == attempts_.end()) {
    ++stats_.returns_ignored;
    return;
  }
  HeadAttempt& attempt = it->second;
  const auto place = std::find_if(attempt.flights.begin(), attempt.flights.end(),
                                  [&](const HeadFlight& f) { return f.step == row.key.step; });
  if (place == attempt.flights.end()) {
    ++stats_.returns_ignored;
    return;
  }
  // A verify row returns whole, any other with its last token alone.
  const bool is_whole = place->kind == RoundRowKind::kVerify;
  const int32_t position = place->position + (is_whole ? 0 : place->token_count - 1);
  if (row.position != position || row.token_count != (is_whole ? place->token_count : 1)) {
    End(it,
        Fail(FailureKind::kStepConflict, row.key.attempt,
             absl::StrCat("step ", row.key.step.value(), " came back at position ", row.position)));
    return;
  }
  HeadFlight flight = std::move(*place);
  attempt.flights.erase(place);
  attempt.progress = now;
  // One lap a round: its rows were on the way together.
  if (lap_walk_ != flight.walk) lap_times_.Add(flight.round_tokens, now - flight.sent);
  if (attempt.drafter != nullptr) attempt.drafter->Observe(flight.round_tokens, now - flight.sent);
  lap_walk_ = flight.walk;
  if (flight.is_piece()) {
    TellProgress(attempt, flight.position + flight.token_count);
  } else {
    ++attempt.timings.laps;
    attempt.timings.lap_time += now - flight.sent;
    attempt.timings.stage_compute += row.compute;
    TakeStageTimes(attempt, row);
  }
  // What the row itself says of logits is a stranger's word; what was asked for counts.
  HeadLane& lane = attempt.lane->second;
  if (!flight.is_sampled()) return LeaveRing(lane, flight);
  if (HeadRound* round = FindRound(lane, flight.walk)) ++round->rows_sampling;
  LeaveRing(lane, flight);
  finishes_.push_back({.key = row.key,
                       .lease = *attempt.lease,
                       .hidden = bundle.hidden,
                       .row = hidden_row,
                       .row_count = row.token_count});
  attempt.finishing = std::move(flight);
}

void HeadCore::TellProgress(const HeadAttempt& attempt, int32_t tokens_done) {
  if (!attempt.run.want_progress) return;
  actions_.progress.push_back({.key = attempt.run.key,
                               .tokens_done = std::min(tokens_done, attempt.prefix_count),
                               .tokens = attempt.prefix_count});
}

// A stranger's word; only one that speaks of every stage counts.
void HeadCore::TakeStageTimes(HeadAttempt& attempt, const BundleRow& row) {
  if (row.stage_compute.size() != attempt.run.route.size()) return;
  attempt.timings.by_stage.resize(row.stage_compute.size());
  for (size_t i = 0; i < row.stage_compute.size(); ++i) {
    attempt.timings.by_stage[i] += row.stage_compute[i];
  }
}

bool HeadCore::Stands(const StepKey& key, const SamplerLease& lease) const {
  const auto it = attempts_.find(key.attempt);
  return it != attempts_.end() && it->second.lease == lease && it->second.finishing.has_value() &&
         it->second.finishing->step == key.step;
}

// Gives the device the rows that came back while it was busy with the last ones.
void HeadCore::StartFinish() {
  if (finish_job_) return;
  std::vector<Finish> picked = PickFinishes();
  if (picked.empty()) return;
  ComputeJob job{.id = job_id_next_++, .kind = JobKind::kFinish};
  job.hidden = Gather(picked);
  job.samples.reserve(picked.size());
  drawn_.clear();
  drawn_.reserve(picked.size());
  for (const Finish& finish : picked) {
    const HeadAttempt& attempt = attempts_.find(finish.key.attempt)->second;
    drawn_.push_back({.key = finish.key, .lease = finish.lease});
    job.samples.push_back({.key = finish.key,
                           .row = static_cast<int32_t>(finish.row),
                           .index = attempt.generated,
                           .drafts = attempt.finishing->drafts,
                           .sampler = slots_.Use(finish.lease)});
  }
  finish_job_ = job.id;
  actions_.jobs.push_back(std::move(job));
}

std::vector<HeadCore::Finish> HeadCore::PickFinishes() {
  std::vector<Finish> picked;
  size_t row_count = 0;
  while (!finishes_.empty()) {
    Finish& finish = finishes_.front();
    if (Stands(finish.key, finish.lease)) {
      row_count += static_cast<size_t>(finish.row_count);
      if (row_count > options_.samples_max && !picked.empty()) break;
      picked.push_back(std::move(finish));
    }
    finishes_.pop_front();
  }
  return picked;
}

// One buffer of all rows picked, which then say where in it they are. The returned one itself if
// all of them are in it.
BufferRef HeadCore::Gather(std::vector<Finish>& picked) const {
  const bool is_one_buffer = std::all_of(picked.begin(), picked.end(), [&](const Finish& finish) {
    return finish.hidden == picked.front().hidden;
  });
  if (is_one_buffer) return picked.front().hidden;
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  size_t row_count = 0;
  for (const Finish& finish : picked) row_count += static_cast<size_t>(finish.row_count);
  const std::shared_ptr<Buffer> gathered = Buffer::Allocate(row_count * token_bytes);
  int64_t at = 0;
  for (Finish& finish : picked) {
    std::memcpy(gathered->data() + static_cast<size_t>(at) * token_bytes,
                finish.hidden->data() + static_cast<size_t>(finish.row) * token_bytes,
                static_cast<size_t>(finish.row_count) * token_bytes);
    finish.row = at;
    at += finish.row_count;
  }
  return gathered;
}

// What is wrong with a sampler, or with what it was given, ends its own attempt.
void HeadCore::TakeResult(const Drawn& drawn, SampleResult result, absl::Duration compute_time,
                          Instant now) {
  if (!Stands(drawn.key, drawn.lease)) return;
  const auto it = attempts_.find(drawn.key.attempt);
  HeadAttempt& attempt = it->second;
  const HeadFlight flight = *std::exchange(attempt.finishing, std::nullopt);
  attempt.progress = now;
  if (!flight.is_piece()) attempt.timings.head_compute += compute_time;
  if (result.status.ok() && result.tokens.empty()) {
    result.status = MakeFailure(FailureKind::kDeviceLost, "the answer has no token");
  }
  if (result.tokens.size() > 1 + flight.drafts.size()) {
    result.status = MakeFailure(FailureKind::kDeviceLost, "the answer has too many tokens");
    result.tokens.clear();
  }
  LeaveSampling(attempt.lane->second, flight, result.status.ok());
  const bool is_text_over = result.finished && result.status.ok();
  if (!result.tokens.empty() &&
      !TakeTokens(it, flight, std::move(result.tokens), is_text_over, now)) {
    return;
  }
  if (result.status.ok()) return;
  const FailureKind kind = FailureKindOf(result.status);
  End(it, Fail(kind == FailureKind::kNone ? FailureKind::kDeviceLost : kind, drawn.key.attempt,
               absl::StrCat("step ", drawn.key.step.value(), " at the head, node ",
                            options_.node.value(), ": ", result.status.message()),
               /*blame_self=*/kind != FailureKind::kInvalidRequest));
}

// Takes what was drawn of one step, in order; false if the attempt ended with one of them. What is
// left of the step's drafts was wrong, and is taken back with the next one.
bool HeadCore::TakeTokens(Attempts::iterator it, const HeadFlight& flight,
                          std::vector<SampledToken> tokens, bool is_text_over, Instant now) {
  HeadAttempt& attempt = it->second;
  const auto accepted = static_cast<uint32_t>(tokens.size() - 1);
  attempt.timings.drafted += static_cast<uint32_t>(flight.drafts.size());
  attempt.timings.accepted += accepted;
  stats_.tokens_drafted += flight.drafts.size();
  stats_.tokens_accepted += accepted;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_last = is_text_over && i + 1 == tokens.size();
    if (!TakeToken(it, std::move(tokens[i]), is_last, now)) return false;
  }
  const auto valid = static_cast<int32_t>(attempt.tokens.size()) - 1;
  attempt.rejected = attempt.sent - valid;
  attempt.sent = valid;
  Move(attempt, attempt.lane->second.ready);
  attempt.rounds_at_ready = attempt.lane->second.rounds_begun;
  return true;
}

// One token more; false if the attempt ended with it. Behind the last one nothing may follow.
bool HeadCore::TakeToken(Attempts::iterator it, SampledToken token, bool is_last, Instant now) {
  HeadAttempt& attempt = it->second;
  HeadLane& lane = attempt.lane->second;
  const auto rounds_between = static_cast<uint32_t>(lane.rounds_begun - attempt.rounds_at_token);
  if (attempt.is_decoding) {
    attempt.timings.rounds_between_max =
        std::max(attempt.timings.rounds_between_max, rounds_between);
  } else {
    attempt.is_decoding = true;
    ++lane.decoding;
    attempt.first_token = now;
    attempt.timings.prefill = now - attempt.admitted;
  }
  attempt.rounds_at_token = lane.rounds_begun;
  attempt.last_token = now;
  ++stats_.tokens_sampled;
  const int32_t id = token.token;
  const std::vector<int32_t>& stops = attempt.run.stop_tokens;
  if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
    End(it, absl::OkStatus(), FinishReason::kStop, id);
    return false;
  }
  attempt.tokens.push_back(id);
  actions_.tokens.push_back(
      {.key = it->first, .index = attempt.generated, .token = std::move(token)});
  ++attempt.generated;
  if (is_last) {
    End(it, absl::OkStatus(), FinishReason::kStop);
    return false;
  }
  const auto rows_used = static_cast<int32_t>(attempt.tokens.size()) - 1;
  if (attempt.generated >= static_cast<uint32_t>(attempt.run.new_tokens_max) ||
      rows_used >= attempt.tokens_limit) {
    End(it, absl::OkStatus(), FinishReason::kLength);
    return false;
  }
  return true;
}

}  // namespace shardline
