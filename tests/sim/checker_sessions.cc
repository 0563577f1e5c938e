// What is watched of the ledger and of the sessions: epochs, records, deadlines, fan-out.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/sim_coordinator.h"

namespace shardline::sim {

std::string NameOf(const AttemptKey& key);

void Checker::OnGranted(const SimCoordinator& coordinator, testing::MemoryStore& store,
                        const RequestIdentity& identity, Instant deadline,
                        const absl::StatusOr<Admission>& admission) {
  if (!admission.ok()) return;
  const AttemptKey& key = admission->key;
  if (const auto floor = store.Floor(); floor.ok() && *floor > SessionId()) {
    Count(Sometimes::kFloorRaised);
    std::erase_if(keys_, [&](const auto& known) { return known.second.first < *floor; });
  }
  if (!identity.key.empty()) {
    const auto [it, is_new] = keys_.try_emplace(identity.key, key.session, identity.digest);
    if (!is_new && it->second.first != key.session) {
      Fail(24, absl::StrCat("key ", identity.key, " runs as session ", key.session.value(),
                            " and as session ", it->second.first.value()));
    }
    if (!is_new && it->second.second != identity.digest) {
      Fail(24, absl::StrCat("key ", identity.key, " is taken for two requests"));
    }
  }
  if (admission->known) Count(Sometimes::kReattached);
  if (admission->outcome) Count(Sometimes::kReplayedFromLedger);
  if (!admission->granted) return;
  Epoch& current = current_[key.session];
  if (attempts_.contains(key) || key.epoch <= current) {
    Fail(1, absl::StrCat(NameOf(key), " was granted after epoch ", current.value()));
  }
  for (auto it = attempts_.lower_bound({key.session, Epoch()});
       it != attempts_.end() && it->first.session == key.session; ++it) {
    const auto record = store.FindAttempt(it->first);
    if (!record.ok() || !*record || (*record)->state == AttemptState::kOpen) {
      Fail(2, absl::StrCat(NameOf(it->first), " is open while ", NameOf(key), " is granted"));
      continue;
    }
    if (it->second.record) continue;
    it->second.record = **record;
    const FailureKind kind = (*record)->kind;
    const bool no_room = kind == FailureKind::kOverloaded || kind == FailureKind::kKvExhausted;
    const auto own = reigns_.find({key.session, coordinator.term()});
    // Who finds no room waits as often as it must.
    if (no_room && it->second.term == coordinator.term() && own != reigns_.end()) {
      --own->second.grants;
    }
    if ((*record)->state == AttemptState::kUnverified) Count(Sometimes::kUnverified);
    if (it->second.term == coordinator.term()) CheckFannedOut(it->first, it->second);
  }
  current = key.epoch;
  attempts_[key] = {.term = coordinator.term()};
  const auto [reign, is_first] = reigns_.try_emplace({key.session, coordinator.term()});
  if (is_first) reign->second.deadline = deadline;
  if (deadline > reign->second.deadline + absl::Milliseconds(1) &&
      identity.session == std::nullopt) {
    Fail(26, absl::StrCat(NameOf(key), " has got another deadline than its session"));
  }
  // Who found no room has waited and not failed.
  ++reign->second.grants;
  const int counted = reign->second.grants - FullAttempts(key, coordinator.term());
  if (counted > 3) Fail(29, absl::StrCat(NameOf(key), " is attempt ", counted));
}

int Checker::FullAttempts(const AttemptKey& key, Term term) const {
  int count = 0;
  for (auto it = attempts_.lower_bound({key.session, Epoch()});
       it != attempts_.end() && it->first.session == key.session; ++it) {
    if (it->second.term != term || !it->second.record) continue;
    const FailureKind kind = it->second.record->kind;
    if (kind == FailureKind::kKvExhausted || kind == FailureKind::kOverloaded) ++count;
  }
  return count;
}

void Checker::OnFinished(const SimCoordinator& coordinator, const AttemptKey& key,
                         const AttemptRecord& asked, const absl::StatusOr<AttemptRecord>& stored) {
  if (!stored.ok()) {
    if (FailureKindOf(stored.status()) == FailureKind::kStaleEpoch) {
      Count(Sometimes::kZombieFinishRefused);
    }
    return;
  }
  Attempt& attempt = attempts_[key];
  if (attempt.record && *attempt.record != *stored) {
    Fail(3, absl::StrCat(NameOf(key), " has a second terminal record, by term ",
                         coordinator.term().value()));
  }
  attempt.record = *stored;
  CheckFannedOut(key, attempt);
  if (*stored != asked) return;
  switch (stored->state) {
    case AttemptState::kCompleted:
      Count(Sometimes::kCompleted);
      if (key.epoch == Epoch(2)) Count(Sometimes::kCompletedOnEpoch2);
      if (key.epoch == Epoch(3)) Count(Sometimes::kCompletedOnEpoch3);
      if (node_died_) Count(Sometimes::kCompletedAfterRestart);
      break;
    case AttemptState::kExpired:
      Count(Sometimes::kExpired);
      break;
    case AttemptState::kCancelled:
      Count(Sometimes::kCancelled);
      break;
    case AttemptState::kUnverified:
      Count(Sometimes::kUnverified);
      break;
    case AttemptState::kFailed:
      Count(Sometimes::kFailed);
      break;
    default:
      break;
  }
}

// Whoever was sent an OPEN is sent a FENCE by the time the attempt is on record.
void Checker::CheckFannedOut(const AttemptKey& key, const Attempt& attempt) {
  for (size_t i = 0; i < attempt.fences.size(); ++i) {
    if (attempt.fences[i] == 0) {
      Fail(38, absl::StrCat(NameOf(key), " is over, and stage ", i, " (",
                            attempt.route[i].node.value(), ") was sent no fence"));
    }
  }
}

void Checker::OnOpenSent(const SessionsActions::Open& open) {
  Attempt& attempt = attempts_[open.key];
  attempt.route = open.route.stages;
  attempt.fences.resize(open.route.stages.size());
}

void Checker::OnFenceSent(const SimCoordinator& coordinator, const SessionsActions::Fence& fence) {
  Attempt& attempt = attempts_[fence.key];
  if (fence.stage < attempt.fences.size()) ++attempt.fences[fence.stage];
  if (!attempt.fenced_at) attempt.fenced_at = coordinator.Now();
}

void Checker::OnRestarted(const SimCoordinator& coordinator,
                          const SessionsActions::Restarted& restart) {
  Count(Sometimes::kRestarted);
  const FailureDetail detail = FailureDetailOf(restart.reason);
  const bool full =
      detail.kind == FailureKind::kOverloaded || detail.kind == FailureKind::kKvExhausted;
  const auto from = attempts_.find(restart.from);
  if (full || detail.node.empty() || from == attempts_.end() || !from->second.fenced_at) return;
  const absl::Duration waited = coordinator.Now() - *from->second.fenced_at;
  if (waited >= SessionsOptions().suspect_backoff) return;
  const std::vector<RouteStage>& stages = restart.route.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool is_link = !detail.reporter.empty() && detail.reporter != detail.node;
    const RouteStage& next = stages[(i + 1) % stages.size()];
    const bool again =
        is_link ? stages[i].node == detail.reporter && next.node == detail.node
                : stages[i].node == detail.node &&
                      std::any_of(
                          from->second.route.begin(), from->second.route.end(),
                          [&](const RouteStage& old) { return old.peer() == stages[i].peer(); });
    if (again) {
      Fail(29, absl::StrCat(NameOf(restart.to), " goes by ", detail.node.value(),
                            " again, which has just failed it"));
    }
  }
}

void Checker::OnPoisoned(SessionId session) {
  // One more may die of what an older coordinator began.
  if (++deaths_[session] > 2 + (takeovers_ > 0 ? 1 : 0)) {
    Fail(29, absl::StrCat("session ", session.value(), " has killed ", deaths_[session], " nodes"));
  }
}

void Checker::OnOldConnection(const SimNode&, bool dropped) {
  if (dropped) {
    Count(Sometimes::kOldConnectionShutOut);
  } else {
    Fail(15, "a bundle of an old connection was taken after the new one was accepted");
  }
}

void Checker::OnForged(const SimNode&, bool obeyed) {
  if (obeyed) {
    Fail(10, "a forged message was obeyed");
  } else {
    Count(Sometimes::kForgedRefused);
  }
}

}  // namespace shardline::sim
