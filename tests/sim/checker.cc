#include "tests/sim/checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {

std::string NameOf(const AttemptKey& key) {
  return absl::StrCat("session ", key.session.value(), " epoch ", key.epoch.value());
}

std::string_view SometimesName(Sometimes what) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Sometimes::kCount)> kNames = {
      "completed",
      "completed on epoch 2",
      "completed on epoch 3",
      "completed after a node restarted",
      "tokens delivered by two coordinators",
      "cancelled with a step in flight",
      "fence before open",
      "step replayed",
      "step answered as in flight",
      "row refused",
      "expired",
      "failed",
      "cancelled",
      "finish of an old term refused",
      "open of an old term refused",
      "open of a fenced epoch refused",
      "pages pinned by a release",
      "kv exhausted",
      "non-finite value quarantined",
      "attempt expired by its node",
      "node lost and back",
      "coordinator restarted",
      "planned again",
      "session restarted",
      "link resumed",
      "resume refused",
      "old connection shut out",
      "client came back",
      "answered from the ledger",
      "ended as poison",
      "ended unverified",
      "forged message refused",
      "floor raised",
      "link found silent",
      "attempt ended as unlisted",
      "prefix found",
      "prefix found in part",
      "cached page evicted",
      "page shared by two",
      "draft accepted",
      "draft rejected",
      "announced bundle came",
      "another bundle came",
      "two rounds in flight",
      "rows of several in a round",
      "attempt queued at a head",
      "session waited for room",
      "halt with queued attempts"};
  return kNames[static_cast<size_t>(what)];
}

void Checker::Fail(int invariant, std::string what) {
  if (!violation_) violation_ = Violation{.invariant = invariant, .what = std::move(what)};
}

void Checker::OnTakeover(const SimCoordinator& coordinator, testing::MemoryStore& store) {
  if (coordinator.term() > Term(1)) {
    Count(Sometimes::kCoordinatorRestarted);
    ++takeovers_;
    deaths_.clear();
  }
  const auto open = store.OpenAttempts();
  if (open.ok() && !open->empty()) {
    Fail(2, absl::StrCat(NameOf(open->front().key), " is open after a takeover"));
  }
}

void Checker::OnNodeLost(const SimCoordinator& coordinator, const NodeId& node,
                         Incarnation incarnation) {
  lives_.erase({coordinator.number(), node});
  (void)incarnation;
}

void Checker::OnNodeWelcomed(const SimCoordinator& coordinator, const NodeId& node,
                             Incarnation incarnation) {
  const auto [it, is_new] = lives_.try_emplace({coordinator.number(), node});
  Life& life = it->second;
  if (!is_new && life.incarnation != incarnation) {
    Fail(34, absl::StrCat(node.value(), " is welcomed as incarnation ", incarnation.value(),
                          " before incarnation ", life.incarnation.value(), " was lost"));
  }
  if (is_new && node_died_) Count(Sometimes::kNodeLostAndBack);
  if (is_new) {
    life.incarnation = incarnation;
    life.echoed_at = coordinator.Now();
    life.progress_at = coordinator.Now();
  }
  life.echo = 0;
}

void Checker::OnBeat(const SimCoordinator& coordinator, const NodeId& node, const NodeBeat& beat) {
  const auto found = lives_.find({coordinator.number(), node});
  if (found == lives_.end()) return;
  Life& life = found->second;
  if (beat.echo > life.echo) {
    life.echo = beat.echo;
    life.echoed_at = coordinator.Now();
  }
  life.busy = beat.jobs_started > beat.jobs_done;
  if (!life.busy || beat.jobs_done != life.jobs_done) life.progress_at = coordinator.Now();
  life.jobs_done = beat.jobs_done;
}

void Checker::OnCoordinatorDied(const SimCoordinator& coordinator) {
  std::erase_if(lives_, [&](const auto& life) { return life.first.first == coordinator.number(); });
}

void Checker::OnCoordinatorEvent(const SimCoordinator& coordinator) {
  constexpr absl::Duration kSlack = absl::Milliseconds(5);
  const Instant now = coordinator.Now();
  Instant& good_until = lives_good_until_[coordinator.number()];
  if (now <= good_until) return;
  const absl::Duration lease = MembershipOptions().lease;
  const absl::Duration wedge = MembershipOptions().wedge_timeout;
  // Proofs only become newer, and whoever comes in has just given one.
  good_until = now + std::min(lease, wedge) + kSlack;
  for (auto it = lives_.lower_bound({coordinator.number(), NodeId()});
       it != lives_.end() && it->first.first == coordinator.number(); ++it) {
    Life& life = it->second;
    good_until =
        std::min({good_until, life.echoed_at + lease + kSlack, life.progress_at + wedge + kSlack});
    const bool is_silent = now - life.echoed_at > lease + kSlack;
    const bool is_wedged = life.busy && now - life.progress_at > wedge + kSlack;
    if ((!is_silent && !is_wedged) || coordinator.resuming()) {
      life.late_since.reset();
      continue;
    }
    if (!life.late_since) life.late_since = now;
    if (now - *life.late_since < kSlack) continue;
    Fail(28, absl::StrCat(it->first.second.value(), " counts as live ",
                          is_silent ? absl::FormatDuration(now - life.echoed_at) : std::string(),
                          is_silent ? " after its last echoed beat" : "with a wedged device"));
  }
}

void Checker::OnAsked(const SimClient&) {}

void Checker::OnClientToken(const SimClient& client, uint32_t index, int32_t token) {
  if (index != client.tokens().size()) {
    Fail(21, absl::StrCat("client ", client.index(), " got token ", index, " where token ",
                          client.tokens().size(), " is next"));
    return;
  }
  if (index >= client.reference().size() || client.reference()[index] != token) {
    Fail(16, absl::StrCat("client ", client.index(), " got ", token, " as token ", index,
                          ", which is not the undisturbed run's"));
  }
}

void Checker::OnClientEnd(const SimClient& client, const ClientWords& words) {
  std::optional<AttemptRecord> outcome;
  if (client.attempt()) outcome = OutcomeOf(client.attempt()->session);
  // A takeover that ends a session without its client does not know what was delivered.
  // And a client that came back may hold what another coordinator has told it.
  const bool knows = outcome && outcome->prompt_tokens > 0 && !client.came_back();
  if (knows && client.tokens().size() > outcome->tokens) {
    Fail(11, absl::StrCat("client ", client.index(), " has ", client.tokens().size(),
                          " tokens, the record of its session ", outcome->tokens));
  }
  if (!words.status.ok()) {
    const FailureKind kind = FailureKindOf(words.status);
    if (kind == FailureKind::kPoison) Count(Sometimes::kPoisoned);
    const bool is_attack = kind == FailureKind::kStepConflict || kind == FailureKind::kDiverged ||
                           kind == FailureKind::kMalformedBundle ||
                           kind == FailureKind::kStepInFlight || kind == FailureKind::kUnauthorised;
    if (is_attack && !attacks_) {
      Fail(14, absl::StrCat("client ", client.index(),
                            " failed as if attacked: ", std::string(words.status.message())));
    }
    return;
  }
  if (!outcome || outcome->state != AttemptState::kCompleted) {
    Fail(22, absl::StrCat("client ", client.index(), " hears of a success that is not on record"));
    return;
  }
  if (client.tokens().size() != words.tokens || outcome->tokens != words.tokens) {
    Fail(22, absl::StrCat("client ", client.index(), " has ", client.tokens().size(),
                          " tokens, was told of ", words.tokens, ", and ", outcome->tokens,
                          " are on record"));
  }
  if (client.tokens() != client.reference()) {
    Fail(21, absl::StrCat("client ", client.index(),
                          " completed with other tokens than the "
                          "undisturbed run"));
  }
}

std::optional<AttemptRecord> Checker::OutcomeOf(SessionId session) {
  // Of the last one granted: whose write was not heard of is known to the store alone.
  const auto known = current_.find(session);
  std::optional<AttemptRecord> last;
  for (Epoch epoch = known == current_.end() ? Epoch(1) : known->second;; epoch = epoch.Next()) {
    const auto record = store_->FindAttempt({session, epoch});
    if (!record.ok() || !*record) break;
    last = **record;
  }
  const bool is_over =
      last && last->state != AttemptState::kOpen && last->state != AttemptState::kFenced;
  return is_over ? last : std::nullopt;
}

void Checker::CheckAll() {
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.record) continue;
    const auto standing = store_->FindAttempt(key);
    if (!standing.ok() || !*standing || **standing != *attempt.record) {
      Fail(3, absl::StrCat("the terminal record of ", NameOf(key), " has changed"));
    }
  }
  for (const std::unique_ptr<SimNode>& node : cluster_->nodes) CheckNode(*node);
}

void Checker::CheckQuiet() {
  CheckAll();
  const auto open = store_->OpenAttempts();
  if (open.ok() && !open->empty()) {
    Fail(3, absl::StrCat(NameOf(open->front().key), " has no terminal record when all is over"));
  }
  for (const auto& [session, epoch] : current_) {
    if (!OutcomeOf(session)) {
      Fail(4, absl::StrCat("session ", session.value(), " has no outcome when all is over"));
    }
  }
  const auto verdict = store_->VerifyLedger();
  if (!verdict.ok() || !verdict->problems.empty()) {
    Fail(6, absl::StrCat("the ledger is not sound: ",
                         verdict.ok() ? verdict->problems.front() : "it cannot be read"));
  }
  for (const std::unique_ptr<SimNode>& node : cluster_->nodes) {
    const StageCore* stage = node->stage();
    if (stage != nullptr) OnStageGone(*stage);
    if (stage != nullptr && stage->kv().pages_held() != 0) {
      Fail(17, absl::StrCat(node->id().value(), " holds ", stage->kv().pages_held(),
                            " pages when all is over"));
    }
  }
}

}  // namespace shardline::sim
