// What is watched at the nodes: fences, steps, pages, budgets.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_node.h"
#include "xxhash.h"

namespace shardline::sim {

std::string NameOf(const AttemptKey& key);

namespace {

uint64_t DigestOf(const ComputeJob& job, size_t slice) {
  size_t first = 0;
  for (size_t i = 0; i < slice; ++i) first += static_cast<size_t>(job.slices[i].token_count);
  const auto count = static_cast<size_t>(job.slices[slice].token_count);
  if (job.hidden == nullptr) {
    return XXH3_64bits(job.tokens.data() + first, count * sizeof(int32_t));
  }
  return XXH3_64bits(job.hidden->floats().data() + first, count * sizeof(float));
}

}  // namespace

void Checker::OnStageGone(const StageCore& stage) {
  const StageStats& stats = stage.stats();
  const auto add = [this](Sometimes what, uint64_t count) {
    counts_[static_cast<size_t>(what)] += count;
  };
  add(Sometimes::kStepReplayed, stats.rows_replayed);
  add(Sometimes::kStepInFlightAnswered, stats.rows_in_flight_copies);
  add(Sometimes::kRowRefused, stats.rows_refused);
  add(Sometimes::kNonFiniteQuarantined, stats.rows_non_finite);
  add(Sometimes::kExpiredLocally, stats.attempts_expired);
  add(Sometimes::kResumed, stats.attempts_resumed);
  add(Sometimes::kResumeRefused, stats.attempts_in_doubt - stats.attempts_resumed);
  add(Sometimes::kUnlistedEnded, stats.attempts_unlisted);
  add(Sometimes::kPrefixEvicted, stage.kv().prefix_stats().evictions);
  add(Sometimes::kPlanPromoted, stats.plans_promoted);
  add(Sometimes::kPlanDisplaced, stats.plans_displaced);
}

void Checker::OnNodeDied(int node) {
  node_died_ = true;
  OnShardLife(node, Incarnation());
}

void Checker::OnShardLife(int node, Incarnation) {
  std::erase_if(running_, [node](const auto& entry) { return entry.first.first == node; });
  std::erase_if(plans_staged_, [node](const auto& plan) { return plan.first.first == node; });
  std::erase_if(opened_, [node](const auto& entry) { return entry.first.first == node; });
}

void Checker::OnOpenAnswered(const SimNode& node, const OpenAttempt& open,
                             const absl::Status& answer) {
  const AttemptKey& key = open.key;
  Watermark& mark = watermarks_[{node.number(), key.session}];
  const std::string where = absl::StrCat(NameOf(key), " at ", node.id().value());
  if (!answer.ok()) {
    const FailureKind kind = FailureKindOf(answer);
    if (kind == FailureKind::kKvExhausted) Count(Sometimes::kKvExhausted);
    if (kind != FailureKind::kStaleEpoch) return;
    if (key.epoch < mark.lowest) Count(Sometimes::kStaleOpenRefused);
    if (open.term < cluster_->coordinator()->term()) Count(Sometimes::kZombieOpenRefused);
    return;
  }
  if (open.incarnation != node.incarnation()) {
    Fail(9, absl::StrCat(where, " was opened by an OPEN for incarnation ", open.incarnation.value(),
                         "; ", node.incarnation().value(), " is live"));
  }
  if (key.epoch < mark.lowest) {
    Fail(7, absl::StrCat(where, " was opened below epoch ", mark.lowest.value()));
  }
  mark.lowest = std::max(mark.lowest, key.epoch);
  for (auto it = opened_.lower_bound({node.number(), {key.session, Epoch()}});
       it != opened_.end() && it->first.first == node.number() &&
       it->first.second.session == key.session;) {
    it = it->first.second.epoch < key.epoch ? opened_.erase(it) : std::next(it);
  }
  const auto [it, is_new] = opened_.try_emplace({node.number(), key});
  if (is_new) it->second.open = open;
  if (is_new) CountPrefix(node, open);
  if (is_new) it->second.reclaim = node.Now() + open.budget + StageOptions().reclaim_grace;
}

void Checker::OnFenceObeyed(const SimNode& node, SessionId session, Epoch epoch,
                            FailureKind reason) {
  Watermark& mark = watermarks_[{node.number(), session}];
  const auto first = opened_.lower_bound({node.number(), {session, Epoch()}});
  const bool known = first != opened_.end() && first->first.first == node.number() &&
                     first->first.second.session == session;
  if (!known && mark.lowest == Epoch()) Count(Sometimes::kFenceBeforeOpen);
  mark.lowest = std::max(mark.lowest, epoch.Next());
  for (auto it = first; it != opened_.end() && it->first.first == node.number() &&
                        it->first.second.session == session;) {
    const AttemptKey& key = it->first.second;
    if (key.epoch > epoch) break;
    if (node.stage()->kv().PagesOf(key) > 0) {
      Count(Sometimes::kPagesPinnedByRelease);
      if (reason == FailureKind::kCancelled) Count(Sometimes::kCancelledMidStep);
    }
    it = opened_.erase(it);
  }
}

std::optional<Checker::Target> Checker::AnyOpened(const SimNode& node) const {
  const auto it = opened_.lower_bound({node.number(), AttemptKey()});
  if (it == opened_.end() || it->first.first != node.number()) return std::nullopt;
  const Opened& opened = it->second;
  Target target{.open = opened.open};
  if (opened.open.stage_index > 0) {
    target.upstream = opened.open.route[opened.open.stage_index - 1].peer();
  }
  if (opened.step_next > 0) {
    const Arrived& last = opened.arrived[(opened.step_next - 1) % opened.arrived.size()];
    if (last.step == opened.step_next - 1 && last.row.token_count > 0) target.last = last.row;
  }
  return target;
}

void Checker::OnRowsArrive(const SimNode& node, const StageBundle& bundle) {
  for (const BundleRow& row : bundle.rows) {
    const auto opened = opened_.find({node.number(), row.key.attempt});
    if (opened == opened_.end()) continue;
    Arrived* const known = opened->second.At(row.key.step);
    if (known == nullptr) continue;
    Arrived& arrived = *known;
    if (arrived.failed) came_again_ = node.stage()->stats().rows_in_flight_copies;
    arrived.row = row;
    arrived.deadline = std::max(arrived.deadline, node.Now() + row.budget);
    arrived.budget = std::max(arrived.budget, row.budget);
  }
}

std::optional<Checker::Target> Checker::FailedStep(const SimNode& node, const StepKey& step) const {
  const auto it = opened_.find({node.number(), step.attempt});
  if (it == opened_.end() || it->second.open.stage_index == 0) return std::nullopt;
  const Opened& opened = it->second;
  const Arrived& arrived = opened.arrived[step.step.value() % opened.arrived.size()];
  if (arrived.step != step.step.value() || !arrived.failed) return std::nullopt;
  return Target{.open = opened.open,
                .upstream = opened.open.route[opened.open.stage_index - 1].peer(),
                .last = arrived.row};
}

void Checker::OnResumeAnswered(const SimNode& node, const std::vector<InspectStatus>& statuses,
                               const StageStats& before) {
  const StageStats& after = node.stage()->stats();
  if (statuses.size() != 1 || after.attempts_resumed == before.attempts_resumed) return;
  const InspectStatus& status = statuses.front();
  const auto opened = opened_.find({node.number(), status.key});
  if (opened == opened_.end()) return;
  const uint64_t sent = opened->second.step_next;
  const uint64_t lacks = sent - std::min(sent, status.step_next.value());
  if (!status.failure.ok() || after.rows_resent - before.rows_resent != lacks) {
    Fail(15, absl::StrCat(NameOf(status.key), " is resumed at ", node.id().value(), " with ",
                          after.rows_resent - before.rows_resent, " steps sent again; its peer ",
                          "lacks ", lacks));
  }
}

void Checker::OnRowsTaken(const SimNode& node) {
  if (!came_again_) return;
  if (node.stage()->stats().rows_in_flight_copies > *came_again_) {
    Fail(12, absl::StrCat("a step that failed for certain at ", node.id().value(),
                          " counts as in flight when it comes again"));
  }
  came_again_.reset();
}

void Checker::OnJobGiven(const SimNode& node, const ComputeJob& job) {
  for (size_t i = 0; i < job.slices.size(); ++i) {
    const JobSlice& slice = job.slices[i];
    const AttemptKey& key = slice.key.attempt;
    const auto where = [&] {
      return absl::StrCat(NameOf(key), " step ", slice.key.step.value(), " at ", node.id().value());
    };
    const auto mark = watermarks_.find({node.number(), key.session});
    if (mark == watermarks_.end() || key.epoch < mark->second.lowest) {
      Fail(7, absl::StrCat(where(), " writes although it is fenced"));
    }
    const auto opened = opened_.find({node.number(), key});
    if (opened == opened_.end()) {
      Fail(7, absl::StrCat(where(), " writes without being open"));
      return;
    }
    Opened& open = opened->second;
    // A first step may begin behind pages that were found, and one behind wrong drafts takes back.
    const bool is_first = slice.key.step.value() == 0 && slice.position % kPageTokens == 0 &&
                          slice.position <= node.stage()->kv().CachedTokensOf(key);
    if (is_first) open.length = slice.position;
    Arrived* const known = open.At(slice.key.step);
    const int32_t length = open.length - (known == nullptr ? 0 : known->row.rejected);
    if (slice.key.step.value() != open.step_next || slice.position != length) {
      Fail(12, absl::StrCat(where(), " begins at position ", slice.position, ", but step ",
                            open.step_next, " at position ", length, " is next"));
    }
    if (node.stage()->kv().LengthOf(key) != length) {
      Fail(13, absl::StrCat(where(), ": ", node.stage()->kv().LengthOf(key), " rows are visible, ",
                            length, " were computed"));
    }
    CheckPages(node, slice);
    if (known == nullptr) continue;
    Arrived& arrived = *known;
    const uint64_t digest = DigestOf(job, i);
    if (arrived.digest && *arrived.digest != digest) {
      Fail(14, absl::StrCat(where(), " runs with other content than before"));
    }
    arrived.digest = digest;
    arrived.failed = false;
    if (arrived.deadline <= node.Now()) Fail(26, absl::StrCat(where(), " starts without budget"));
  }
}

void Checker::OnJobWrites(const SimNode& node, const ComputeJob& job) {
  for (const JobSlice& slice : job.slices) {
    const AttemptKey& key = slice.key.attempt;
    if (node.stage()->kv().PagesOf(key) == 0) {
      Fail(18, absl::StrCat(NameOf(key), " at ", node.id().value(),
                            " writes pages that it no longer holds"));
    }
  }
}

void Checker::OnJobTaken(const SimNode& node, const ComputeJob& job, const ComputeDone& done) {
  for (size_t i = 0; i < job.slices.size(); ++i) {
    const JobSlice& slice = job.slices[i];
    const auto opened = opened_.find({node.number(), slice.key.attempt});
    if (opened == opened_.end()) continue;
    const bool applied =
        node.stage()->kv().LengthOf(slice.key.attempt) == slice.position + slice.token_count;
    const bool good = done.status.ok() && done.slice_status.size() == job.slices.size() &&
                      done.slice_status[i].ok();
    if (applied && !good) {
      Fail(12, absl::StrCat(NameOf(slice.key.attempt), " step ", slice.key.step.value(), " at ",
                            node.id().value(), " counts as applied although it failed"));
    }
    if (!applied && node.stage()->kv().PagesOf(slice.key.attempt) > 0 && !good) {
      if (Arrived* step = opened->second.At(slice.key.step)) step->failed = true;
      // Whatever was prepared while it ran goes with it, unless it was built on an older failure.
      if (slice.key.step.value() == opened->second.step_next) {
        for (auto& [plan, is_doomed] : plans_staged_) {
          if (plan.first == node.number()) is_doomed = true;
        }
      }
    }
    if (!applied) continue;
    opened->second.step_next = slice.key.step.value() + 1;
    opened->second.length = slice.position + slice.token_count;
  }
}

void Checker::OnForward(const SimNode& node, const Forward& forward) {
  for (const float value : forward.bundle.hidden->floats()) {
    if (!std::isfinite(value)) {
      Fail(36, absl::StrCat(node.id().value(), " sends on a value that is not finite"));
    }
  }
  for (const BundleRow& row : forward.bundle.rows) {
    const AttemptKey& key = row.key.attempt;
    const auto opened = opened_.find({node.number(), key});
    if (opened == opened_.end()) {
      Fail(11, absl::StrCat(NameOf(key), " step ", row.key.step.value(), " at ", node.id().value(),
                            " is sent on although it is fenced"));
      return;
    }
    const Arrived* const arrived = opened->second.At(row.key.step);
    if (arrived != nullptr && row.budget >= arrived->budget) {
      Fail(26, absl::StrCat(NameOf(key), " step ", row.key.step.value(), " at ", node.id().value(),
                            " is sent on with no less budget than it came with"));
    }
  }
}

void Checker::CheckNode(const SimNode& node) {
  const StageCore* stage = node.stage();
  if (stage == nullptr || node.paused() || node.resuming()) return;
  if (const absl::Status books = stage->kv().Audit(); !books.ok()) {
    Fail(17, absl::StrCat(node.id().value(), ": ", std::string(books.message())));
  }
  const SimDevice& device = *node.device();
  const bool computes = device.jobs_started() > device.jobs_done();
  for (auto it = opened_.lower_bound({node.number(), AttemptKey()});
       it != opened_.end() && it->first.first == node.number(); ++it) {
    const AttemptKey& key = it->first.second;
    // A running step may pin them for as long as it runs.
    const bool late = node.Now() > it->second.reclaim + absl::Milliseconds(5);
    if (late && stage->attempts_open() > 0 && stage->kv().PagesOf(key) > 0 &&
        stage->NextWake() == Instant::InfiniteFuture()) {
      Fail(19, absl::StrCat(NameOf(key), " at ", node.id().value(),
                            " holds pages past its deadline, and nothing will free them"));
    }
    if (late && !computes && stage->kv().PagesOf(key) > 0 &&
        node.Now() > it->second.reclaim + absl::Seconds(1)) {
      Fail(19, absl::StrCat(NameOf(key), " at ", node.id().value(),
                            " holds pages a second past its deadline and grace"));
    }
  }
}

}  // namespace shardline::sim
