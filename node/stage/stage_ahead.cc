// What a stage knows ahead: the rows its senders announce, and those it announces to the next one.

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "node/stage/stage_core.h"

namespace shardline {

// Whether all of `rows`, as the next bundle of `from`, would be taken if they came now, as far as
// that can be told without their content.
bool StageCore::CanTake(const StagePeer& from, const std::vector<BundleRow>& rows) const {
  if (rows.size() > options_.bundle_rows_max) return false;
  std::set<SessionId> sessions;
  for (const BundleRow& row : rows) {
    const auto it = attempts_.find(row.key.attempt.session);
    if (it == attempts_.end() || it->second.open.key != row.key.attempt) return false;
    const Attempt& attempt = it->second;
    const bool is_next = row.hop == attempt.open.stage_index && from == UpstreamOf(attempt) &&
                         row.key.step == attempt.ledger.taken();
    if (!is_next || !sessions.insert(row.key.attempt.session).second) return false;
  }
  return true;
}

// Only senders of open attempts get here, and those without a plan are forgotten. An attempt's rows
// come from one sender, so what one sender announces stands whatever others send.
StagedBundle& StageCore::StagedBy(const StagePeer& from) {
  const auto it = ahead_.find(from);
  if (it != ahead_.end()) return it->second;
  std::erase_if(ahead_, [](const auto& entry) { return !entry.second.guard.staged(); });
  return ahead_
      .try_emplace(from, &kv_,
                   [this](const BundleRow& row) {
                     return OnwardRow(attempts_.find(row.key.attempt.session)->second, row);
                   })
      .first->second;
}

void StageCore::OnPlan(const StagePeer& from, const std::vector<BundleRow>& rows, Instant now) {
  Expire(now);
  DropPlanOf(from);
  if (rows.empty()) return;
  if (!CanTake(from, rows)) {
    ++stats_.plans_ignored;
    return;
  }
  StagedBundle& ahead = StagedBy(from);
  ahead.headers.Offer(rows);
  const bool is_staged = ahead.guard.Stage(PlanOf(rows, plan_next_++, kv_.generation())).ok();
  ++(is_staged ? stats_.plans_staged : stats_.plans_ignored);
}

// Before any row of the bundle touches anything.
StageCore::Prepared StageCore::Promote(const StagePeer& from, const std::vector<BundleRow>& rows) {
  const auto it = ahead_.find(from);
  if (it == ahead_.end() || !it->second.guard.staged()) return {};
  StagedBundle& ahead = it->second;
  const uint64_t walk = ahead.guard.staged()->walk;
  if (!ahead.guard.Dispatch(PlanOf(rows, walk, kv_.generation()))) {
    ++stats_.plans_displaced;
    return {};
  }
  ++stats_.plans_promoted;
  return {.tables = ahead.pages.TakeTables(), .onward = ahead.headers.TakeRows()};
}

void StageCore::DropPlans() {
  for (auto& [from, ahead] : ahead_) ahead.guard.Drop();
}

void StageCore::DropPlanOf(const StagePeer& from) {
  if (const auto it = ahead_.find(from); it != ahead_.end()) it->second.guard.Drop();
}

BundleRow StageCore::OnwardRow(const Attempt& attempt, const BundleRow& row) const {
  StepOutput output{.position = row.position,
                    .token_count = row.token_count,
                    .flags = row.flags,
                    .prefix_key = row.prefix_key,
                    .rejected = row.rejected};
  TrimOutput(attempt, output);
  return RowOf(attempt, row.key, output);
}

bool StageCore::IsWorthAPlan(const std::vector<PendingRow>& rows) const {
  int64_t token_count = 0;
  for (const PendingRow& pending : rows) token_count += pending.row.token_count;
  const absl::Duration time = options_.job_cost.step + token_count * options_.job_cost.row;
  return time >= options_.announce_min;
}

// Tells the stages behind this one what the oldest running job will send them, once: as much of it
// as goes into one bundle. The head, which gets what the last stage computes, prepares nothing.
void StageCore::AnnounceJob() {
  if (running_.empty() || running_.begin()->first <= announced_) return;
  announced_ = running_.begin()->first;
  if (!IsWorthAPlan(running_.begin()->second)) return;
  std::vector<int64_t> token_counts;  // Of each plan.
  const size_t first = actions_.plans.size();
  for (const PendingRow& pending : running_.begin()->second) {
    const auto it = attempts_.find(pending.row.key.attempt.session);
    if (it == attempts_.end() || pending.discarded) continue;
    const Attempt& attempt = it->second;
    const RouteStage& to = DownstreamOf(attempt);
    const bool is_last = attempt.open.stage_index + 1 == attempt.open.route.size();
    if (is_last || attempt.doubt || IsSilent(to)) continue;
    auto plan = std::find_if(actions_.plans.begin() + static_cast<std::ptrdiff_t>(first),
                             actions_.plans.end(),
                             [&](const Announcement& known) { return SameLife(known.to, to); });
    if (plan == actions_.plans.end()) {
      plan = actions_.plans.insert(plan, {.to = to, .rows = {}});
      token_counts.push_back(0);
    }
    int64_t& token_count = token_counts[static_cast<size_t>(plan - actions_.plans.begin()) - first];
    token_count += pending.row.token_count;
    const bool fits = plan->rows.empty() || (plan->rows.size() < options_.bundle_rows_max &&
                                             token_count <= options_.bundle_tokens_max);
    if (!fits) continue;
    plan->rows.push_back(pending.onward ? *pending.onward : OnwardRow(attempt, pending.row));
  }
}

}  // namespace shardline
