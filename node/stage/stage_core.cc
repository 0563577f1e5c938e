// What the stage computes and sends on: jobs out of waiting rows, outputs into bundles.

#include "node/stage/stage_core.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "node/stage/step_chain.h"

namespace shardline {
StageCore::StageCore(StageOptions options)
    : options_(std::move(options)), kv_(options_.pages_total), floor_(options_.floor) {
  SL_CHECK(!options_.node.empty());
  SL_CHECK(!options_.layers.empty());
  SL_CHECK(options_.layers.end <= options_.layers_total);
  SL_CHECK(options_.hidden_dim > 0);
  SL_CHECK(options_.context_tokens_max > 0);
  SL_CHECK(options_.sessions_max > options_.attempts_max);
  SL_CHECK(options_.attempts_max > 0);
  SL_CHECK(options_.bundle_rows_max > 0);
  SL_CHECK(options_.bundle_tokens_max > 0);
  SL_CHECK(options_.jobs_in_flight_max > 0);
}

StageActions StageCore::TakeActions() {
  if (actions_.empty()) return {};  // Asked after every event, and mostly so.
  return std::exchange(actions_, {});
}

Instant StageCore::NextWake() const {
  absl::Duration wake = absl::InfiniteDuration();
  if (!reclaims_.empty()) wake = reclaims_.begin()->first;
  if (!doubts_.empty()) wake = std::min(wake, doubts_.begin()->first);
  return Instant::FromOrigin(wake);
}

void StageCore::OnTick(Instant now) {
  Expire(now);
  StartJobs(now);
}

void StageCore::StartJobs(Instant now) {
  while (running_.size() < options_.jobs_in_flight_max && !waiting_.empty()) {
    FailExpiredRows(now);
    std::vector<PendingRow> rows = PickRows();
    if (rows.empty()) break;
    ComputeJob job = BuildJob(rows);
    ++stats_.jobs;
    running_.emplace(job.id, std::move(rows));
    actions_.jobs.push_back(std::move(job));
  }
  AnnounceJob();
}

// The budget is asked again here: the row may have waited, or the machine slept.
void StageCore::FailExpiredRows(Instant now) {
  while (!Planted(PlantedBug::kExpiredStepStarts)) {
    const auto row = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const PendingRow& r) { return r.deadline <= now; });
    if (row == waiting_.end()) return;
    const StepKey key = row->row.key;
    Attempt& attempt = attempts_.find(key.attempt.session)->second;
    FailRows(attempt, key.step,
             Blame(FailureKind::kDeadlineExceeded, key, "its budget ended before it was computed"));
  }
}

// Rows in order of arrival, of whichever bundles: the long ones up to job_tokens_max, and so many
// tokens of short ones besides, so that a decode step waits behind one job of prompts and no more.
// At most one step of an attempt: a later step reads what the earlier one writes.
std::vector<StageCore::PendingRow> StageCore::PickRows() {
  std::vector<PendingRow> picked;
  std::set<SessionId> sessions;  // Picked or passed over.
  int64_t long_tokens = 0;
  int64_t short_tokens = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    int64_t& tokens = it->row.token_count <= kShortRowTokens ? short_tokens : long_tokens;
    const bool fits = tokens == 0 || tokens + it->row.token_count <= options_.job_tokens_max;
    const bool is_first = sessions.insert(it->row.key.attempt.session).second;
    if (!is_first || !fits) {
      ++it;
      continue;
    }
    tokens += it->row.token_count;
    picked.push_back(std::move(*it));
    it = waiting_.erase(it);
  }
  return picked;
}

ComputeJob StageCore::BuildJob(std::vector<PendingRow>& rows) {
  ComputeJob job{.id = job_id_next_++, .kind = JobKind::kLayers};
  std::vector<StepOutput> inputs;
  for (PendingRow& pending : rows) {
    const BundleRow& row = pending.row;
    job.slices.push_back({.key = row.key,
                          .position = row.position,
                          .token_count = row.token_count,
                          .kept_rows = kv_.KeptRows(row.key.attempt, row.position, row.token_count),
                          .pages = std::move(pending.pages)});
    job.tokens.insert(job.tokens.end(), pending.tokens.begin(), pending.tokens.end());
    inputs.push_back({.hidden = std::move(pending.hidden),
                      .row = static_cast<int32_t>(pending.hidden_row),
                      .token_count = row.token_count});
  }
  if (!options_.is_head) job.hidden = Gather(inputs);
  return job;
}

// The rows of `outputs` one after the other. The buffer itself when they are all of it, in order.
BufferRef StageCore::Gather(const std::vector<StepOutput>& outputs) const {
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  size_t token_count = 0;
  bool is_whole = true;
  for (const StepOutput& output : outputs) {
    is_whole = is_whole && output.hidden == outputs.front().hidden &&
               static_cast<size_t>(output.row) == token_count;
    token_count += static_cast<size_t>(output.token_count);
  }
  const BufferRef& first = outputs.front().hidden;
  if (is_whole && first->size() == token_count * token_bytes) return first;
  const std::shared_ptr<Buffer> gathered = Buffer::Allocate(token_count * token_bytes);
  std::byte* out = gathered->data();
  for (const StepOutput& output : outputs) {
    const size_t bytes = static_cast<size_t>(output.token_count) * token_bytes;
    std::memcpy(out, output.hidden->data() + static_cast<size_t>(output.row) * token_bytes, bytes);
    out += bytes;
  }
  return gathered;
}

void StageCore::OnComputeDone(ComputeDone done, Instant now) {
  Expire(now);
  const auto job = running_.find(done.id);
  if (job == running_.end()) return;
  std::vector<PendingRow>& rows = job->second;
  int64_t token_count = 0;
  for (const PendingRow& pending : rows) token_count += pending.row.token_count;
  const size_t bytes =
      static_cast<size_t>(token_count) * static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  // The device is not trusted with our memory: an answer of another shape is a lost device.
  if (done.status.ok() && (done.slice_status.size() != rows.size() || done.hidden == nullptr ||
                           done.hidden->size() != bytes)) {
    done.status =
        MakeFailure(FailureKind::kDeviceLost, "the answer has another shape than the job");
  }
  int64_t hidden_row = 0;
  for (size_t slice = 0; slice < rows.size(); ++slice) {
    FinishRow(rows[slice], done, slice, hidden_row, now);
    hidden_row += rows[slice].row.token_count;
  }
  running_.erase(job);
  StartJobs(now);
  FlushOutputs();
}

void StageCore::FinishRow(PendingRow& pending, const ComputeDone& done, size_t slice,
                          int64_t hidden_row, Instant now) {
  const BundleRow& row = pending.row;
  const AttemptKey key = row.key.attempt;
  if (pending.discarded) {
    ++stats_.rows_discarded;
    kv_.Unpin(key);
    if (Planted(PlantedBug::kFencedOutputForwarded)) EmitFenced(pending, done, hidden_row, now);
    return;
  }
  const auto it = attempts_.find(key.session);
  SL_CHECK(it != attempts_.end());
  Attempt& attempt = it->second;
  const absl::Status& status = done.status.ok() ? done.slice_status[slice] : done.status;
  const bool forwards_nan =
      Planted(PlantedBug::kNonFiniteForwarded) && FailureKindOf(status) == FailureKind::kNonFinite;
  if (!status.ok() && !forwards_nan) {
    const FailureKind kind = FailureKindOf(status);
    if (kind == FailureKind::kNonFinite) ++stats_.rows_non_finite;
    FailRows(attempt, row.key.step,
             Blame(kind == FailureKind::kNone ? FailureKind::kDeviceLost : kind, row.key,
                   std::string(status.message())));
    kv_.Unpin(key);
    return;
  }
  if (!Planted(PlantedBug::kVisibleBeforeComputed)) kv_.Commit(key, row.token_count);
  PublishPages(attempt, row);
  kv_.Unpin(key);
  StepOutput output = OutputOf(attempt, pending, done, hidden_row);
  attempt.ledger.Commit(row.key.step, output);
  attempt.taken_back = 0;
  attempt.chain_out = ChainAfter(attempt, row.key, output);
  ++stats_.rows_committed;
  stats_.tokens_committed += static_cast<uint64_t>(row.token_count);
  if (IsHeadOf(attempt)) actions_.computed.push_back({row.key, done.compute_time});
  if (absl::Status sent = Emit(attempt, row.key, output, now); !sent.ok()) {
    Refuse(UpstreamOf(attempt), row.key, std::move(sent));
  }
}

// Of a planted bug: the output of a step whose attempt was fenced meanwhile goes nowhere.
void StageCore::EmitFenced(const PendingRow& pending, const ComputeDone& done, int64_t hidden_row,
                           Instant now) {
  const auto it = undead_.find(pending.row.key.attempt);
  if (it == undead_.end() || !done.status.ok()) return;
  const StepOutput output = OutputOf(it->second, pending, done, hidden_row);
  (void)Emit(it->second, pending.row.key, output, now);
}

uint64_t StageCore::ChainAfter(const Attempt& attempt, const StepKey& key,
                               const StepOutput& output) const {
  if (attempt.open.route.size() == 1) return 0;  // Straight to the own head, which keeps none.
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  const uint64_t digest =
      RowDigest(RowOf(attempt, key, output),
                output.hidden->data() + static_cast<size_t>(output.row) * token_bytes,
                static_cast<size_t>(output.token_count) * token_bytes);
  return ChainNext(output.chain, key.step, digest);
}

StepOutput StageCore::OutputOf(const Attempt& attempt, const PendingRow& pending,
                               const ComputeDone& done, int64_t hidden_row) {
  const BundleRow& row = pending.row;
  StepOutput output{.hidden = done.hidden,
                    .row = static_cast<int32_t>(hidden_row),
                    .position = row.position,
                    .token_count = row.token_count,
                    .flags = row.flags,
                    .prefix_key = row.prefix_key,
                    .rejected = row.rejected,
                    .compute = row.compute + done.compute_time,
                    .stage_compute = row.stage_compute,
                    .deadline = pending.deadline,
                    .budget_max = row.budget - kLeastShrink,
                    .chain = attempt.chain_out};
  if ((row.flags & kRowWantsStageTimes) != 0) output.stage_compute.push_back(done.compute_time);
  TrimOutput(attempt, output);
  return output;
}

// Back at the head nobody needs more than the last token's hidden state, unless drafts are
// verified.
void StageCore::TrimOutput(const Attempt& attempt, StepOutput& output) const {
  if (attempt.open.stage_index + 1 < attempt.open.route.size()) return;
  if ((output.flags & kRowWantsAllLogits) != 0) return;
  output.row += output.token_count - 1;
  output.position += output.token_count - 1;
  output.token_count = 1;
}

// `from` and every later step that waits or computes are certainly not applied: they are refused
// with `status`, their KV is taken back, and `from` may come again.
void StageCore::FailRows(Attempt& attempt, StepIndex from, const absl::Status& status) {
  const AttemptKey key = attempt.open.key;
  const StagePeer upstream = UpstreamOf(attempt);
  int32_t token_count = 0;
  DropPlans();
  const auto fails = [&](const PendingRow& pending) {
    return pending.row.key.attempt == key && pending.row.key.step >= from && !pending.discarded;
  };
  for (auto& [id, rows] : running_) {
    for (PendingRow& pending : rows) {
      if (!fails(pending)) continue;
      pending.discarded = true;
      token_count += pending.row.token_count;
      Refuse(upstream, pending.row.key, status);
    }
  }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!fails(*it)) {
      ++it;
      continue;
    }
    token_count += it->row.token_count;
    kv_.Unpin(key);
    Refuse(upstream, it->row.key, status);
    it = waiting_.erase(it);
  }
  if (!Planted(PlantedBug::kVisibleBeforeComputed)) kv_.Abandon(key, token_count);
  if (!Planted(PlantedBug::kCertainFailureStaysInFlight)) attempt.ledger.AbandonFrom(from);
}

BundleRow StageCore::RowOf(const Attempt& attempt, const StepKey& key,
                           const StepOutput& output) const {
  return {.key = key,
          .position = output.position,
          .token_count = output.token_count,
          .hop = attempt.open.stage_index + 1,
          .flags = output.flags,
          .compute = output.compute,
          .chain = output.chain,
          .prefix_key = output.prefix_key,
          .rejected = output.rejected,
          .stage_compute = output.stage_compute};
}

// While the link is in doubt the output is kept and no more: it is sent when the doubt ends.
absl::Status StageCore::Emit(const Attempt& attempt, const StepKey& key, const StepOutput& output,
                             Instant now) {
  const OpenAttempt& open = attempt.open;
  absl::Duration budget = std::min(output.deadline - now, output.budget_max);
  if (budget <= absl::ZeroDuration()) {
    return Blame(FailureKind::kDeadlineExceeded, key, "its budget ended before it was sent on");
  }
  if (Planted(PlantedBug::kBudgetDoesNotShrink)) budget = output.budget_max + kLeastShrink;
  Outbound outbound{.is_return = open.route.size() == 1, .output = output};
  if (!outbound.is_return) {
    outbound.to = DownstreamOf(attempt);
    if (attempt.doubt) return absl::OkStatus();
    if (silent_.contains(outbound.to.peer())) {
      Redial(outbound.to);
      return LinkFailure(attempt, FailureKind::kHeartbeatLost, key.step, "is silent");
    }
  }
  outbound.row = RowOf(attempt, key, output);
  outbound.row.budget = budget;
  outbound_.push_back(std::move(outbound));
  return absl::OkStatus();
}

// Gathers what this event sends into as few bundles as their limits allow, destinations in the
// order they first came up.
void StageCore::FlushOutputs() {
  while (!outbound_.empty()) {
    const bool is_return = outbound_.front().is_return;
    const RouteStage to = outbound_.front().to;
    StageBundle bundle;
    std::vector<StepOutput> outputs;
    std::vector<Outbound> rest;
    int64_t token_count = 0;
    bool is_full = false;
    for (Outbound& outbound : outbound_) {
      const bool is_same =
          outbound.is_return == is_return && outbound.to.peer() == to.peer() && !is_full;
      const bool fits = bundle.rows.empty() ||
                        (bundle.rows.size() < options_.bundle_rows_max &&
                         token_count + outbound.output.token_count <= options_.bundle_tokens_max);
      is_full = is_full || (is_same && !fits);
      if (!is_same || !fits) {
        rest.push_back(std::move(outbound));
        continue;
      }
      token_count += outbound.output.token_count;
      bundle.rows.push_back(outbound.row);
      outputs.push_back(std::move(outbound.output));
    }
    outbound_ = std::move(rest);
    bundle.hidden = Gather(outputs);
    if (is_return) {
      actions_.returns.push_back(std::move(bundle));
    } else {
      actions_.forwards.push_back({.to = to, .bundle = std::move(bundle)});
    }
  }
}

}  // namespace shardline
