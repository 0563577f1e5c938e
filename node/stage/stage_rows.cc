// How rows arrive: the judgement of each, in the order fence, hop, ledger, length, budget.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"

namespace shardline {
absl::Status StageCore::Blame(FailureKind kind, const StepKey& key,
                              const std::string& message) const {
  return MakeFailure(
      FailureDetail{.kind = kind,
                    .session = key.attempt.session,
                    .epoch = key.attempt.epoch,
                    .step = key.step,
                    .node = options_.node,
                    .layers = options_.layers},
      absl::StrCat("session ", key.attempt.session.value(), " epoch ", key.attempt.epoch.value(),
                   " step ", key.step.value(), " at node ", options_.node.value(), " (",
                   options_.layers.ToString(), "): ", message));
}

StagePeer StageCore::UpstreamOf(const Attempt& attempt) const {
  const OpenAttempt& open = attempt.open;
  return open.stage_index == 0 ? StagePeer{} : open.route[open.stage_index - 1].peer();
}

const RouteStage& StageCore::DownstreamOf(const Attempt& attempt) const {
  const OpenAttempt& open = attempt.open;
  return open.route[(open.stage_index + 1) % open.route.size()];
}

void StageCore::Refuse(const StagePeer& to, const StepKey& key, absl::Status status) {
  ++stats_.refusals[static_cast<size_t>(FailureKindOf(status))];
  ++stats_.rows_refused;
  Tell(to, {.key = key, .status = std::move(status)});
}

// What goes upstream is remembered until the step comes again: a reset may take it.
void StageCore::Tell(const StagePeer& to, RowFailure failure) {
  const auto it = attempts_.find(failure.key.attempt.session);
  if (it != attempts_.end() && it->second.open.key == failure.key.attempt &&
      to == UpstreamOf(it->second) && FailureKindOf(failure.status) != FailureKind::kStepInFlight) {
    std::optional<RowFailure>& told = it->second.told;
    if (!told || failure.key.step <= told->key.step) told = failure;
  }
  actions_.refusals.push_back({.to = to, .failure = std::move(failure)});
}

// What concerns the bundle as a whole: its counts, and that its content is as long as they say.
absl::Status StageCore::CheckShape(const StagePeer& from, const StageBundle& bundle) const {
  const auto malformed = [&](const std::string& message) {
    return MakeFailure(
        FailureDetail{.kind = FailureKind::kMalformedBundle, .node = options_.node},
        absl::StrCat("bundle from ", from.is_own_head() ? "the own head" : from.node.value(),
                     " at node ", options_.node.value(), ": ", message));
  };
  if (bundle.rows.size() > options_.bundle_rows_max) {
    return malformed(absl::StrCat(bundle.rows.size(), " rows"));
  }
  int64_t token_count = 0;
  for (const BundleRow& row : bundle.rows) {
    if (row.token_count < 0) return malformed("a negative token count");
    token_count += row.token_count;
  }
  if (token_count > options_.bundle_tokens_max) {
    return malformed(absl::StrCat(token_count, " tokens"));
  }
  if (from.is_own_head()) {
    if (!options_.is_head) return malformed("the shard is not a head");
    if (bundle.hidden != nullptr) return malformed("hidden state where tokens belong");
    if (static_cast<int64_t>(bundle.tokens.size()) != token_count) {
      return malformed(
          absl::StrCat(bundle.tokens.size(), " token ids for ", token_count, " tokens"));
    }
    return absl::OkStatus();
  }
  if (!bundle.tokens.empty()) return malformed("token ids where hidden state belongs");
  const size_t bytes =
      static_cast<size_t>(token_count) * static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  const size_t given = bundle.hidden == nullptr ? 0 : bundle.hidden->size();
  if (given != bytes) {
    return malformed(absl::StrCat(given, " bytes of hidden state for ", token_count, " tokens"));
  }
  return absl::OkStatus();
}

void StageCore::OnBundle(const StagePeer& from, StageBundle bundle, Instant now) {
  Expire(now);
  if (IsShutOut(from, bundle.connection)) {
    ++stats_.bundles_shut_out;
    return;
  }
  ++stats_.bundles;
  if (const absl::Status status = CheckShape(from, bundle); !status.ok()) {
    for (const BundleRow& row : bundle.rows) {
      FailureDetail detail = FailureDetailOf(status);
      detail.session = row.key.attempt.session;
      detail.epoch = row.key.attempt.epoch;
      detail.step = row.key.step;
      Refuse(from, row.key, WithFailureDetail(status, detail));
    }
    return;
  }
  Prepared prepared = Promote(from, bundle.rows);
  int64_t at = 0;
  for (size_t i = 0; i < bundle.rows.size(); ++i) {
    const BundleRow& row = bundle.rows[i];
    PendingRow pending{.row = row, .deadline = now + row.budget, .hidden = bundle.hidden};
    pending.hidden_row = at;
    if (from.is_own_head()) {
      pending.tokens.assign(bundle.tokens.begin() + at,
                            bundle.tokens.begin() + at + row.token_count);
    }
    at += row.token_count;
    if (i < prepared.tables.size()) pending.pages = std::move(prepared.tables[i]);
    if (i < prepared.onward.size()) pending.onward = prepared.onward[i];
    const StepKey key = row.key;
    if (absl::Status status = TakeRow(from, std::move(pending), now); !status.ok()) {
      Refuse(from, key, std::move(status));
    }
  }
  StartJobs(now);
  FlushOutputs();
}

absl::StatusOr<StageCore::Attempt*> StageCore::FindOpen(const StepKey& key) {
  const auto it = attempts_.find(key.attempt.session);
  if (it != attempts_.end() && it->second.open.key == key.attempt) return &it->second;
  if (it != attempts_.end() && Planted(PlantedBug::kStepIgnoresEpoch)) return &it->second;
  if (absl::Status status = CheckFence(key.attempt); !status.ok()) {
    FailureDetail detail = FailureDetailOf(status);
    detail.step = key.step;
    return WithFailureDetail(status, detail);
  }
  if (IsForgotten(key.attempt.session)) {
    return Blame(FailureKind::kStaleEpoch, key, "the session is forgotten");
  }
  return Blame(FailureKind::kCacheMiss, key, "the attempt is not open here");
}

absl::Status StageCore::TakeRow(const StagePeer& from, PendingRow pending, Instant now) {
  BundleRow& row = pending.row;
  SL_ASSIGN_OR_RETURN(Attempt * attempt, FindOpen(row.key));
  pending.deadline = std::min(pending.deadline, attempt->deadline);

  const OpenAttempt& open = attempt->open;
  if (IsHeadOf(*attempt) && row.hop == open.route.size()) {
    return TakeReturn(from, *attempt, pending, now);
  }
  if (row.hop != open.stage_index) {
    return Blame(
        FailureKind::kMalformedBundle, row.key,
        absl::StrCat("hop ", row.hop, " at stage ", open.stage_index, " of ", open.route.size()));
  }
  if (from != UpstreamOf(*attempt)) {
    return Blame(FailureKind::kMalformedBundle, row.key,
                 absl::StrCat("node '", from.node.value(), "' is not the stage before this one"));
  }
  if (row.token_count < 1) {
    return Blame(FailureKind::kMalformedBundle, row.key, "no tokens");
  }
  SL_RETURN_IF_ERROR(CheckPrefixKey(row));

  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  pending.digest =
      from.is_own_head()
          ? RowDigest(row, pending.tokens.data(), pending.tokens.size() * sizeof(int32_t))
          : RowDigest(row, pending.hidden->data() + token_bytes * pending.hidden_row,
                      token_bytes * static_cast<size_t>(row.token_count));
  // The own head keeps no chain: nothing lies between the two.
  std::optional<uint64_t> chain;
  if (!from.is_own_head()) chain = row.chain;
  if (PlantedAsItsOwn(*attempt, row)) chain.reset();
  SL_ASSIGN_OR_RETURN(const StepVerdict verdict,
                      attempt->ledger.Judge(row.key.step, pending.digest, chain));
  if (verdict == StepVerdict::kInFlight) {
    ++stats_.rows_in_flight_copies;
    return Blame(FailureKind::kStepInFlight, row.key, "the step is computing");
  }
  const bool has_budget = pending.deadline > now || Planted(PlantedBug::kExpiredStepStarts);
  if (verdict == StepVerdict::kReplay) {
    if (!has_budget) return Blame(FailureKind::kDeadlineExceeded, row.key, "no budget left");
    ++stats_.rows_replayed;
    StepOutput output = attempt->ledger.OutputOf(row.key.step);
    output.deadline = pending.deadline;
    output.budget_max = row.budget - kLeastShrink;
    return Emit(*attempt, row.key, output, now);
  }

  const AttemptKey& key = row.key.attempt;
  SL_RETURN_IF_ERROR(TakeBack(*attempt, row));
  if (Planted(PlantedBug::kRejectedStays)) row.position = kv_.TakenLengthOf(key);
  if (absl::Status status = kv_.CheckAppend(key, row.position, row.token_count); !status.ok()) {
    return Blame(FailureKindOf(status), row.key, std::string(status.message()));
  }
  if (!has_budget) return Blame(FailureKind::kDeadlineExceeded, row.key, "no budget left");
  if (waiting_.size() >= options_.rows_waiting_max) {
    return Blame(FailureKind::kOverloaded, row.key,
                 absl::StrCat(waiting_.size(), " rows wait for the device"));
  }
  SL_ASSIGN_OR_RETURN(const std::span<const int32_t> pages,
                      kv_.Append(key, row.position, row.token_count));
  if (pending.pages.empty()) pending.pages.assign(pages.begin(), pages.end());
  kv_.Pin(key);
  if (Planted(PlantedBug::kVisibleBeforeComputed)) kv_.Commit(key, row.token_count);
  if (Planted(PlantedBug::kCachedUncomputed)) PublishPages(*attempt, row);
  attempt->ledger.Begin(row.key.step, pending.digest);
  if (attempt->told && row.key.step <= attempt->told->key.step) attempt->told.reset();
  waiting_.push_back(std::move(pending));
  return absl::OkStatus();
}

// The drafts of the step before that were wrong leave the KV. Only drafts do, only before the next
// step, and not twice: a row that failed since may have taken them back already.
absl::Status StageCore::TakeBack(Attempt& attempt, const BundleRow& row) {
  if (Planted(PlantedBug::kRejectedStays)) return absl::OkStatus();
  const StepLedger& ledger = attempt.ledger;
  int32_t drafts = 0;
  if (ledger.taken() == ledger.next() && ledger.retained_count() > 0) {
    const StepOutput& last = ledger.OutputOf(StepIndex(ledger.next().value() - 1));
    if ((last.flags & kRowWantsAllLogits) != 0) drafts = last.token_count - 1;
  }
  const int32_t before = drafts > 0 ? attempt.taken_back : 0;
  if (row.rejected < before || row.rejected > drafts) {
    return Blame(FailureKind::kStepConflict, row.key,
                 absl::StrCat(row.rejected, " rejected tokens behind ", drafts,
                              " drafts, of which ", before, " are taken back"));
  }
  if (row.rejected == before) return absl::OkStatus();
  if (absl::Status status = kv_.Rewind(row.key.attempt, row.rejected - before); !status.ok()) {
    return Blame(FailureKindOf(status), row.key, std::string(status.message()));
  }
  attempt.taken_back = row.rejected;
  return absl::OkStatus();
}

// True if a planted bug takes the step for the next one of the open attempt, wherever it belongs.
bool StageCore::PlantedAsItsOwn(const Attempt& attempt, BundleRow& row) const {
  const StepIndex taken = attempt.ledger.taken();
  const bool is_next = row.key.attempt != attempt.open.key ||
                       (row.key.step > taken && Planted(PlantedBug::kStepGapAccepted)) ||
                       (row.key.step < taken && Planted(PlantedBug::kStepRunsTwice));
  if (!is_next) return false;
  row.key = {.attempt = attempt.open.key, .step = taken};
  row.position = kv_.TakenLengthOf(row.key.attempt);
  return true;
}

// A row back at the head's node: for the head core, if it can be true at all. They come in order
// and once each; copies are dropped.
absl::Status StageCore::TakeReturn(const StagePeer& from, Attempt& attempt,
                                   const PendingRow& pending, Instant now) {
  const BundleRow& row = pending.row;
  if (from.is_own_head() || !SameLife(from, attempt.open.route.back())) {
    return Blame(FailureKind::kMalformedBundle, row.key,
                 absl::StrCat("node '", from.node.value(), "' is not the last stage"));
  }
  const bool is_whole = (row.flags & kRowWantsAllLogits) != 0;
  if (is_whole ? row.token_count < 1 : row.token_count != 1) {
    return Blame(FailureKind::kMalformedBundle, row.key,
                 absl::StrCat(row.token_count, " tokens where the last one alone returns"));
  }
  if (row.key.step >= attempt.ledger.next()) {
    return Blame(FailureKind::kStepConflict, row.key, "returned before it was sent");
  }
  const size_t token_bytes = static_cast<size_t>(options_.hidden_dim) * sizeof(float);
  const uint64_t digest = RowDigest(row, pending.hidden->data() + token_bytes * pending.hidden_row,
                                    token_bytes * static_cast<size_t>(row.token_count));
  const absl::StatusOr<StepVerdict> verdict =
      attempt.returns.Judge(row.key.step, digest, row.chain);
  if (verdict.ok() ? *verdict == StepVerdict::kReplay
                   : FailureKindOf(verdict.status()) == FailureKind::kUncertain) {
    ++stats_.returns_repeated;
    return absl::OkStatus();
  }
  SL_RETURN_IF_ERROR(verdict.status());
  if (pending.deadline <= now) {
    return Blame(FailureKind::kDeadlineExceeded, row.key, "no budget left");
  }
  attempt.returns.Begin(row.key.step, digest);
  attempt.returns.Commit(row.key.step, {});
  outbound_.push_back({.to = {},
                       .is_return = true,
                       .row = row,
                       .output = {.hidden = pending.hidden,
                                  .row = static_cast<int32_t>(pending.hidden_row),
                                  .position = row.position,
                                  .token_count = row.token_count,
                                  .flags = row.flags}});
  return absl::OkStatus();
}

void StageCore::OnRowFailure(const StagePeer& from, RowFailure failure, Instant now) {
  Expire(now);
  const auto it = attempts_.find(failure.key.attempt.session);
  if (it == attempts_.end() || it->second.open.key != failure.key.attempt) return;
  const Attempt& attempt = it->second;
  // Only the stage that was given the step can say that it failed there.
  if (attempt.open.route.size() < 2 || !SameLife(from, DownstreamOf(attempt))) return;
  if (failure.key.step >= attempt.ledger.next()) return;
  if (failure.status.ok()) {
    failure.status = Blame(FailureKind::kUncertain, failure.key,
                           absl::StrCat("node ", from.node.value(), " failed it without a reason"));
  }
  ++stats_.failures_passed;
  Tell(UpstreamOf(attempt), std::move(failure));
}

}  // namespace shardline
