// What happens when links break and stand again: steps in doubt, the question, the answer, and
// the steps that are sent again.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/planted_bug.h"
#include "node/stage/stage_core.h"

namespace shardline {
namespace {

// Peers whose connections are remembered; one node is one, whichever its life.
constexpr size_t kPeersMax = 4096;

}  // namespace

bool StageCore::SendsTo(const Attempt& attempt, const StagePeer& peer) const {
  return attempt.open.route.size() > 1 && SameLife(DownstreamOf(attempt), peer);
}

absl::Status StageCore::LinkFailure(const Attempt& attempt, FailureKind kind, StepIndex step,
                                    const std::string& reason) const {
  const RouteStage& next = DownstreamOf(attempt);
  const AttemptKey& key = attempt.open.key;
  return MakeFailure(FailureDetail{.kind = kind,
                                   .session = key.session,
                                   .epoch = key.epoch,
                                   .step = step,
                                   .node = next.node,
                                   .layers = next.layers,
                                   .reporter = options_.node},
                     absl::StrCat("the link from node ", options_.node.value(), " to node ",
                                  next.node.value(), " (", next.layers.ToString(), ") ", reason));
}

void StageCore::EndDoubt(Attempt& attempt) {
  if (!attempt.doubt) return;
  doubts_.erase({attempt.doubt->until.since_origin(), attempt.open.key.session});
  attempt.doubt.reset();
}

// The head ignores those of the retained steps that it has back; what it waits for ends.
void StageCore::FailDoubt(Attempt& attempt, FailureKind kind, const std::string& reason) {
  EndDoubt(attempt);
  const StepLedger& ledger = attempt.ledger;
  for (StepIndex step = ledger.first_retained(); step < ledger.next(); step = step.Next()) {
    Refuse(UpstreamOf(attempt), {.attempt = attempt.open.key, .step = step},
           LinkFailure(attempt, kind, step, reason));
  }
}

void StageCore::ExpireDoubts(Instant now) {
  while (!doubts_.empty() && doubts_.begin()->first <= now.since_origin()) {
    Attempt& attempt = attempts_.find(doubts_.begin()->second)->second;
    FailDoubt(attempt, FailureKind::kStreamReset,
              attempt.doubt->asked ? "broke, and the peer does not say what it has taken"
                                   : "broke with the step on its way");
  }
}

void StageCore::Redial(const RouteStage& stage) {
  const bool is_known =
      std::any_of(actions_.redials.begin(), actions_.redials.end(),
                  [&](const RouteStage& known) { return SameLife(known, stage); });
  if (!is_known) actions_.redials.push_back(stage);
}

void StageCore::OnLinkLost(const StagePeer& peer, const absl::Status& reason, Instant now) {
  Expire(now);
  const FailureKind kind = FailureKindOf(reason);
  const bool was_silent = silent_.contains(peer);
  if (kind == FailureKind::kHeartbeatLost) {
    std::erase_if(silent_, [&](const StagePeer& other) {
      return other.node == peer.node && other.incarnation < peer.incarnation;
    });
    silent_.insert(peer);
  }
  // Bytes that were spoilt on the way are asked for again like those that were lost.
  const bool is_reset = kind == FailureKind::kNone || kind == FailureKind::kStreamReset ||
                        kind == FailureKind::kChecksumMismatch;
  const bool resumes = is_reset && options_.resume_timeout > absl::ZeroDuration();
  for (auto& [session, attempt] : attempts_) {
    if (!SendsTo(attempt, peer)) continue;
    if (silent_.contains(peer)) Redial(DownstreamOf(attempt));
    // Who has sent nothing has nothing to doubt; and what a silent peer had has failed before.
    if (attempt.ledger.retained_count() == 0 || was_silent) continue;
    if (!resumes) {
      const bool is_silent = kind == FailureKind::kHeartbeatLost;
      FailDoubt(attempt, is_silent ? kind : FailureKind::kStreamReset,
                is_silent ? "is silent" : "broke with the step on its way");
      continue;
    }
    Redial(DownstreamOf(attempt));
    if (attempt.doubt) {
      attempt.doubt->asked = false;
      continue;
    }
    attempt.doubt = Doubt{.until = now + options_.resume_timeout};
    doubts_.emplace(attempt.doubt->until.since_origin(), session);
    ++stats_.attempts_in_doubt;
  }
}

void StageCore::OnLinkUp(const StagePeer& peer, Instant now) {
  Expire(now);
  silent_.erase(peer);
  Inspect inspect;
  for (auto& [session, attempt] : attempts_) {
    if (!attempt.doubt || !SendsTo(attempt, peer)) continue;
    attempt.doubt->asked = true;
    inspect.to = DownstreamOf(attempt);
    inspect.rows.push_back({.key = attempt.open.key});
  }
  if (!inspect.rows.empty()) actions_.inspects.push_back(std::move(inspect));
}

// A later life of the same node has linked: whatever this one sent comes late.
bool StageCore::HasNewerLife(const StagePeer& peer) const {
  const auto next = connections_.upper_bound(peer);
  return next != connections_.end() && next->first.node == peer.node;
}

bool StageCore::IsShutOut(const StagePeer& from, uint64_t connection) const {
  if (connection == 0 || Planted(PlantedBug::kResumeWithoutFence)) return false;
  const auto newest = connections_.find(from);
  return HasNewerLife(from) || (newest != connections_.end() && connection < newest->second);
}

absl::Status StageCore::OnLinkAccepted(const StagePeer& from, uint64_t connection) {
  if (HasNewerLife(from)) {
    return MakeFailure({.kind = FailureKind::kWorkerDeath, .node = from.node},
                       absl::StrCat("a later life of node ", from.node.value(),
                                    " than incarnation ", from.incarnation.value(), " has linked"));
  }
  const auto known = connections_.find(from);
  if (known != connections_.end() && connection <= known->second) {
    return MakeFailure({.kind = FailureKind::kStreamReset, .node = options_.node},
                       absl::StrCat("connection ", connection, " of node ", from.node.value(),
                                    " is not newer than ", known->second));
  }
  std::erase_if(connections_, [&](const auto& entry) {
    return entry.first.node == from.node && entry.first.incarnation < from.incarnation;
  });
  if (known == connections_.end() && connections_.size() >= kPeersMax) {
    return MakeFailure({.kind = FailureKind::kOverloaded, .node = options_.node},
                       absl::StrCat(connections_.size(), " peers have linked to this node"));
  }
  connections_[from] = connection;
  DropPlanOf(from);
  return absl::OkStatus();
}

InspectStatus StageCore::StatusFor(const StagePeer& from, const AttemptKey& key) {
  const absl::StatusOr<Attempt*> found = FindOpen({.attempt = key, .step = StepIndex()});
  if (!found.ok()) return {.key = key, .failure = found.status()};
  Attempt& attempt = **found;
  const bool is_return = IsHeadOf(attempt) && SameLife(from, attempt.open.route.back());
  if (!is_return && from != UpstreamOf(attempt)) {
    return {.key = key,
            .failure = Blame(
                FailureKind::kMalformedBundle, {.attempt = key, .step = StepIndex()},
                absl::StrCat("node '", from.node.value(), "' is not the stage before this one"))};
  }
  const StepLedger& ledger = is_return ? attempt.returns : attempt.ledger;
  if (!is_return && attempt.told) {
    actions_.refusals.push_back({.to = from, .failure = *attempt.told});
  }
  return {.key = key, .step_next = ledger.taken(), .chain = ledger.chain_taken()};
}

void StageCore::OnInspect(const StagePeer& from, const std::vector<InspectRow>& rows, Instant now) {
  Expire(now);
  if (from.is_own_head() || rows.empty()) return;
  InspectAnswer answer{.to = from};
  for (const InspectRow& row : rows) answer.statuses.push_back(StatusFor(from, row.key));
  actions_.answers.push_back(std::move(answer));
}

void StageCore::OnInspectReply(const StagePeer& from, const std::vector<InspectStatus>& rows,
                               Instant now) {
  Expire(now);
  for (const InspectStatus& row : rows) {
    const auto it = attempts_.find(row.key.session);
    if (it == attempts_.end() || it->second.open.key != row.key) continue;
    Attempt& attempt = it->second;
    if (attempt.doubt && attempt.doubt->asked && SendsTo(attempt, from)) {
      Resume(attempt, row, now);
    }
  }
  FlushOutputs();
}

void StageCore::Resume(Attempt& attempt, const InspectStatus& status, Instant now) {
  const StepLedger& ledger = attempt.ledger;
  StepIndex step = status.step_next;
  if (Planted(PlantedBug::kResumeUnverified)) {
    step = ledger.next();
  } else if (!status.failure.ok()) {
    FailDoubt(attempt, FailureKind::kStreamReset,
              absl::StrCat("broke, and the peer cannot go on: ", status.failure.message()));
    return;
  } else if (step < ledger.first_retained() || step > ledger.next()) {
    FailDoubt(attempt, FailureKind::kUncertain,
              absl::StrCat("broke; the peer waits for step ", step.value(), ", kept are steps ",
                           ledger.first_retained().value(), " to ", ledger.next().value()));
    return;
  } else {
    const uint64_t own = step == ledger.next() ? attempt.chain_out : ledger.OutputOf(step).chain;
    if (own != status.chain) {
      FailDoubt(attempt, FailureKind::kUncertain, "broke, and the peer has taken other steps");
      return;
    }
  }
  EndDoubt(attempt);
  ++stats_.attempts_resumed;
  for (; step < ledger.next(); step = step.Next()) {
    ++stats_.rows_resent;
    const StepKey key{.attempt = attempt.open.key, .step = step};
    if (absl::Status sent = Emit(attempt, key, ledger.OutputOf(step), now); !sent.ok()) {
      Refuse(UpstreamOf(attempt), key, std::move(sent));
    }
  }
}

}  // namespace shardline
