// How attempts come and go: OPEN, FENCE, the local deadline, and what is remembered of them.

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"

namespace shardline {
namespace {

constexpr size_t kRouteStagesMax = 256;
constexpr absl::Duration kBudgetMax = absl::Hours(24);
constexpr uint64_t kEpochMax = ~uint64_t{0};

std::string NameOf(const AttemptKey& key) {
  return absl::StrCat("session ", key.session.value(), " epoch ", key.epoch.value());
}

bool SameContent(const OpenAttempt& a, const OpenAttempt& b) {
  return a.recipe == b.recipe && a.stage_index == b.stage_index && a.route == b.route &&
         a.tokens_max == b.tokens_max && a.prefix_keys == b.prefix_keys &&
         a.prefix_root == b.prefix_root;
}

}  // namespace

std::string Recipe::ToString() const {
  return absl::StrCat("model ", model_id.value(), ", numerics ", numerics_id.value(), ", plan ",
                      plan_epoch.value());
}

absl::StatusOr<OpenReply> StageCore::Open(const OpenAttempt& open, Instant now) {
  Expire(now);
  if (absl::Status status = CheckOpen(open); !status.ok()) {
    ++stats_.opens_refused;
    return status;
  }
  const AttemptKey& key = open.key;
  const auto older = attempts_.find(key.session);
  if (older != attempts_.end() && older->second.open.key.epoch == key.epoch) {
    term_ = open.term;
    // The coordinator may have signed it anew, for less budget; the run names the newest.
    older->second.open.capability = open.capability;
    older->second.open.open_seq = std::max(older->second.open.open_seq, open.open_seq);
    return GrantOf(key);
  }
  if (absl::Status status = kv_.Reserve(key, open.tokens_max, open.prefix_keys); !status.ok()) {
    ++stats_.opens_refused;
    FailureDetail detail = FailureDetailOf(status);
    detail.node = options_.node;
    detail.layers = options_.layers;
    return WithFailureDetail(status, detail);
  }
  if (older != attempts_.end()) {
    Close(older);
    ++stats_.attempts_fenced;
  }
  term_ = open.term;
  const Instant deadline = now + open.budget;
  const Instant reclaim = deadline + options_.reclaim_grace;
  const auto chain_at = [&](size_t hop) {
    return ChainStart(key, static_cast<uint32_t>(hop), open.recipe);
  };
  attempts_.emplace(key.session, Attempt{.open = open,
                                         .deadline = deadline,
                                         .reclaim = reclaim,
                                         .ledger = StepLedger(key, chain_at(open.stage_index)),
                                         .returns = StepLedger(key, chain_at(open.route.size())),
                                         .chain_out = chain_at(open.stage_index + 1)});
  if (!Planted(PlantedBug::kNoLocalDeadline)) {
    reclaims_.emplace(reclaim.since_origin(), key.session);
  }
  closed_.erase(key.session);
  // The coordinator trusts the way: a link that was silent gets another chance.
  silent_.erase(DownstreamOf(attempts_.find(key.session)->second).peer());
  RaiseFence(key.session, key.epoch);
  ++stats_.attempts_opened;
  return GrantOf(key);
}

OpenReply StageCore::GrantOf(const AttemptKey& key) const {
  return {.pages_reserved = kv_.PagesOf(key),
          .pages_free = kv_.pages_free(),
          .cached_tokens = kv_.CachedTokensOf(key)};
}

absl::Status StageCore::CheckOpen(const OpenAttempt& open) const {
  const AttemptKey& key = open.key;
  const auto refuse = [&](FailureKind kind, const std::string& message) {
    FailureDetail detail{.kind = kind,
                         .session = key.session,
                         .epoch = key.epoch,
                         .node = options_.node,
                         .layers = options_.layers};
    if (kind == FailureKind::kOverloaded) detail.retry_after = absl::Seconds(1);
    return MakeFailure(detail, absl::StrCat("open ", NameOf(key), " at node ",
                                            options_.node.value(), ": ", message));
  };
  if (open.incarnation != options_.incarnation && !Planted(PlantedBug::kOpenIgnoresIncarnation)) {
    return refuse(FailureKind::kWorkerDeath,
                  absl::StrCat("this is incarnation ", options_.incarnation.value(), ", not ",
                               open.incarnation.value()));
  }
  if (options_.authorise) {
    if (const absl::Status status = options_.authorise(open); !status.ok()) {
      return refuse(FailureKind::kUnauthorised, std::string(status.message()));
    }
  }
  if (open.term < term_) {
    return refuse(FailureKind::kStaleEpoch,
                  absl::StrCat("term ", open.term.value(), " is older than term ", term_.value()));
  }
  if (key.epoch.value() == 0 || key.epoch.value() == kEpochMax) {
    return refuse(FailureKind::kInvalidRequest, "no such epoch");
  }
  if (open.recipe != options_.recipe) {
    return refuse(FailureKind::kIncompatibleRecipe,
                  absl::StrCat("asks for ", open.recipe.ToString(), "; the shard holds ",
                               options_.recipe.ToString()));
  }
  SL_RETURN_IF_ERROR(CheckRoute(open));
  if (open.tokens_max < 1 || open.tokens_max > options_.context_tokens_max) {
    return refuse(FailureKind::kInvalidRequest,
                  absl::StrCat("tokens_max is ", open.tokens_max, ", not in [1, ",
                               options_.context_tokens_max, "]"));
  }
  SL_RETURN_IF_ERROR(CheckPrefix(open));
  if (open.budget > kBudgetMax) {
    return refuse(FailureKind::kInvalidRequest, "the budget is longer than a day");
  }
  if (open.budget <= absl::ZeroDuration()) {
    return refuse(FailureKind::kDeadlineExceeded, "no budget left");
  }
  const auto it = attempts_.find(key.session);
  if (it != attempts_.end() && it->second.open.key.epoch == key.epoch) {
    if (SameContent(it->second.open, open)) return absl::OkStatus();
    return refuse(FailureKind::kStepConflict, "it is open with other content");
  }
  if (!Planted(PlantedBug::kOpenIgnoresFence)) SL_RETURN_IF_ERROR(CheckFence(key));
  if (IsForgotten(key.session)) {
    return refuse(FailureKind::kOverloaded,
                  absl::StrCat("sessions below ", forgotten_.value(), " are forgotten here"));
  }
  if (it == attempts_.end() && attempts_.size() >= options_.attempts_max) {
    return refuse(FailureKind::kOverloaded,
                  absl::StrCat(attempts_.size(), " attempts are open, the most there may be"));
  }
  return absl::OkStatus();
}

absl::Status StageCore::CheckRoute(const OpenAttempt& open) const {
  const auto refuse = [&](FailureKind kind, const std::string& message) {
    return MakeFailure(
        FailureDetail{.kind = kind,
                      .session = open.key.session,
                      .epoch = open.key.epoch,
                      .node = options_.node,
                      .layers = options_.layers},
        absl::StrCat("open ", NameOf(open.key), " at node ", options_.node.value(), ": ", message));
  };
  const std::vector<RouteStage>& route = open.route;
  if (route.empty() || route.size() > kRouteStagesMax || open.stage_index >= route.size()) {
    return refuse(FailureKind::kInvalidRequest,
                  absl::StrCat("stage ", open.stage_index, " of a route of ", route.size()));
  }
  const RouteStage& own = route[open.stage_index];
  const bool is_this_life =
      own.incarnation == options_.incarnation || Planted(PlantedBug::kOpenIgnoresIncarnation);
  if (own.node != options_.node || !is_this_life) {
    return refuse(FailureKind::kInvalidRequest,
                  absl::StrCat("stage ", open.stage_index, " of the route is node ",
                               own.node.value(), " incarnation ", own.incarnation.value()));
  }
  if (own.layers != options_.layers) {
    return refuse(FailureKind::kIncompatibleRecipe,
                  absl::StrCat("the route expects ", own.layers.ToString(), ", the shard holds ",
                               options_.layers.ToString()));
  }
  if ((open.stage_index == 0) != options_.is_head) {
    return refuse(FailureKind::kIncompatibleRecipe,
                  options_.is_head ? "the shard is a head, the route has it as a later stage"
                                   : "the shard is not a head");
  }
  int32_t next_layer = 0;
  std::set<NodeId> nodes;
  for (const RouteStage& stage : route) {
    if (stage.layers.begin != next_layer || stage.layers.end <= stage.layers.begin) {
      return refuse(FailureKind::kInvalidRequest,
                    absl::StrCat("the route has [", stage.layers.begin, ", ", stage.layers.end,
                                 ") where layer ", next_layer, " should begin"));
    }
    next_layer = stage.layers.end;
    if (stage.node.empty() || !nodes.insert(stage.node).second) {
      return refuse(FailureKind::kInvalidRequest,
                    absl::StrCat("the route has node '", stage.node.value(), "' twice or unnamed"));
    }
  }
  if (next_layer != options_.layers_total) {
    return refuse(FailureKind::kInvalidRequest, absl::StrCat("the route ends at layer ", next_layer,
                                                             " of ", options_.layers_total));
  }
  return absl::OkStatus();
}

// kStaleEpoch if `key` was fenced, superseded or expired here, or if its session is over.
absl::Status StageCore::CheckFence(const AttemptKey& key) const {
  const auto stale = [&](const std::string& why) {
    return MakeFailure(
        FailureDetail{.kind = FailureKind::kStaleEpoch,
                      .session = key.session,
                      .epoch = key.epoch,
                      .node = options_.node,
                      .layers = options_.layers},
        absl::StrCat(NameOf(key), " is fenced at node ", options_.node.value(), ": ", why));
  };
  if (key.session < floor_) {
    return stale(absl::StrCat("every session below ", floor_.value(), " is over"));
  }
  const auto fence = fences_.find(key.session);
  if (fence == fences_.end() || key.epoch >= fence->second) return absl::OkStatus();
  return stale(absl::StrCat("the lowest epoch is ", fence->second.value()));
}

bool StageCore::IsForgotten(SessionId session) const {
  return session < forgotten_ && !fences_.contains(session);
}

FenceReply StageCore::Fence(SessionId session, Epoch epoch, Term term, Instant now) {
  Expire(now);
  if (term < term_) {
    ++stats_.fences_ignored;
    return {};
  }
  term_ = term;
  FenceReply reply;
  const auto it = attempts_.find(session);
  if (it != attempts_.end() && it->second.open.key.epoch <= epoch) {
    reply = Close(it);
    ++stats_.attempts_fenced;
  }
  if (Planted(PlantedBug::kFenceLeavesNoTombstone) && !fences_.contains(session)) return reply;
  // The largest epoch never opens, so stopping at it loses nothing.
  RaiseFence(session, epoch.value() == kEpochMax ? epoch : epoch.Next());
  return reply;
}

// Also the tombstone of sessions never seen. When the table is full, the oldest session without
// an open attempt is forgotten, and with it the right of every unknown session below it to open:
// what is forgotten can never be taken for new.
void StageCore::RaiseFence(SessionId session, Epoch lowest) {
  if (session < floor_ && !attempts_.contains(session)) return;  // The floor is its tombstone.
  const auto [it, is_new] = fences_.try_emplace(session, lowest);
  it->second = std::max(it->second, lowest);
  if (!is_new) return;
  if (!attempts_.contains(session)) closed_.insert(session);
  if (fences_.size() <= options_.sessions_max) return;
  SL_CHECK(!closed_.empty());
  const SessionId oldest = *closed_.begin();
  closed_.erase(closed_.begin());
  fences_.erase(oldest);
  forgotten_ = std::max(forgotten_, oldest.Next());
}

void StageCore::OnFloor(Term term, SessionId floor) {
  if (term < term_ || floor <= floor_) return;
  term_ = term;
  floor_ = floor;
  while (!closed_.empty() && *closed_.begin() < floor_) {
    fences_.erase(*closed_.begin());
    closed_.erase(closed_.begin());
  }
}

// What an older term opened is dead whatever its number: no term adopts another's attempts.
std::vector<AttemptKey> StageCore::OnLiveAttempts(Term term, uint64_t as_of,
                                                  const std::vector<AttemptKey>& keys,
                                                  Instant now) {
  Expire(now);
  std::vector<AttemptKey> ended;
  if (term < term_) return ended;
  term_ = term;
  const std::set<AttemptKey> live(keys.begin(), keys.end());
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const auto attempt = it++;
    const OpenAttempt& open = attempt->second.open;
    const AttemptKey key = open.key;
    const bool is_covered = open.term < term || open.open_seq <= as_of;
    if (!is_covered || live.contains(key)) continue;
    Close(attempt);
    RaiseFence(key.session, key.epoch.Next());
    ++stats_.attempts_unlisted;
    ended.push_back(key);
  }
  return ended;
}

FenceReply StageCore::Close(Attempts::iterator it) {
  const AttemptKey key = it->second.open.key;
  FenceReply reply;
  reply.buffers_released = static_cast<int32_t>(it->second.ledger.retained_count());
  for (auto row = waiting_.begin(); row != waiting_.end();) {
    if (row->row.key.attempt != key) {
      ++row;
      continue;
    }
    kv_.Unpin(key);
    ++reply.buffers_released;
    row = waiting_.erase(row);
  }
  for (auto& [id, rows] : running_) {
    for (PendingRow& row : rows) {
      if (row.row.key.attempt == key) row.discarded = true;
    }
  }
  DropPlans("an attempt ended");
  const ReleasedPages released = kv_.Release(key);
  reply.pages_released = released.page_count;
  reply.pages_pinned = released.pinned_remain;
  reclaims_.erase({it->second.reclaim.since_origin(), key.session});
  EndDoubt(it->second);
  if (Planted(PlantedBug::kFencedOutputForwarded)) {
    undead_.emplace(key, std::move(it->second));
  }
  attempts_.erase(it);
  closed_.insert(key.session);
  return reply;
}

FenceReply StageCore::CloseAll(Instant now) {
  Expire(now);
  FenceReply sum;
  while (!attempts_.empty()) {
    const AttemptKey key = attempts_.begin()->second.open.key;
    const FenceReply reply = Close(attempts_.begin());
    RaiseFence(key.session, key.epoch.Next());
    ++stats_.attempts_fenced;
    sum.pages_released += reply.pages_released;
    sum.buffers_released += reply.buffers_released;
    sum.pages_pinned = sum.pages_pinned || reply.pages_pinned;
  }
  return sum;
}

// Attempts past their deadline, then doubts past theirs.
void StageCore::Expire(Instant now) {
  while (!reclaims_.empty() && reclaims_.begin()->first <= now.since_origin()) {
    const auto it = attempts_.find(reclaims_.begin()->second);
    SL_CHECK(it != attempts_.end());
    const AttemptKey key = it->second.open.key;
    Close(it);
    RaiseFence(key.session, key.epoch.Next());
    ++stats_.attempts_expired;
  }
  ExpireDoubts(now);
}

absl::StatusOr<const OpenAttempt*> StageCore::CheckRun(const AttemptKey& key, Term term,
                                                       Incarnation incarnation,
                                                       const std::string& capability) const {
  const auto refuse = [&](FailureKind kind, const std::string& message) {
    return MakeFailure(
        FailureDetail{.kind = kind,
                      .session = key.session,
                      .epoch = key.epoch,
                      .node = options_.node,
                      .layers = options_.layers},
        absl::StrCat("run ", NameOf(key), " at node ", options_.node.value(), ": ", message));
  };
  if (incarnation != options_.incarnation) {
    return refuse(FailureKind::kWorkerDeath,
                  absl::StrCat("this is incarnation ", options_.incarnation.value(), ", not ",
                               incarnation.value()));
  }
  if (term < term_) {
    return refuse(FailureKind::kStaleEpoch,
                  absl::StrCat("term ", term.value(), " is older than term ", term_.value()));
  }
  if (!options_.is_head) return refuse(FailureKind::kInvalidRequest, "the shard is not a head");
  const auto it = attempts_.find(key.session);
  if (it != attempts_.end() && it->second.open.key.epoch == key.epoch) {
    if (it->second.open.capability == capability) return &it->second.open;
    return refuse(FailureKind::kUnauthorised, "the capability is not that of its OPEN");
  }
  SL_RETURN_IF_ERROR(CheckFence(key));
  return refuse(FailureKind::kCacheMiss, "the attempt is not open here");
}

}  // namespace shardline
