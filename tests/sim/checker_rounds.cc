// What is watched of rounds: who runs at a head and how it ends, what was prepared, whose pages.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "tests/sim/checker.h"
#include "tests/sim/sim_node.h"

namespace shardline::sim {

std::string NameOf(const AttemptKey& key);

void Checker::OnRunAccepted(const SimNode& node, const AttemptKey& key, int32_t in_flight) {
  if (!running_.emplace(NodeAttempt{node.number(), key}, in_flight).second) {
    Fail(41, absl::StrCat(NameOf(key), " runs twice at ", node.id().value()));
  }
  if (node.head()->attempts_queued() > 0) Count(Sometimes::kQueuedAtHead);
}

void Checker::OnHeadActions(const SimNode& node, const HeadActions& actions) {
  const auto runs = [&](const AttemptKey& key) { return running_.contains({node.number(), key}); };
  for (const StageBundle& bundle : actions.steps) {
    if (bundle.rows.size() > 1) Count(Sometimes::kRowsOfSeveral);
    for (const BundleRow& row : bundle.rows) {
      if (runs(row.key.attempt)) continue;
      Fail(45, absl::StrCat(NameOf(row.key.attempt), " step ", row.key.step.value(), " is sent by ",
                            node.id().value(), " after its end"));
    }
  }
  for (const TokenOut& token : actions.tokens) {
    if (!runs(token.key)) Fail(41, absl::StrCat(NameOf(token.key), " says a token after its end"));
  }
  for (const AttemptEnd& end : actions.ends) {
    const auto run = running_.find({node.number(), end.key});
    if (run == running_.end()) {
      Fail(41, absl::StrCat(NameOf(end.key), " ends at ", node.id().value(), " a second time"));
      return;
    }
    const auto bound = static_cast<uint32_t>(2 * run->second);
    if (end.timings.rounds_between_max > bound) {
      Fail(42, absl::StrCat(NameOf(end.key), ": ", end.timings.rounds_between_max,
                            " rounds began between two tokens, at most ", bound, " may"));
    }
    if (end.timings.accepted > 0) Count(Sometimes::kDraftAccepted);
    if (end.timings.drafted > end.timings.accepted) Count(Sometimes::kDraftRejected);
    running_.erase(run);
  }
  if (node.head() != nullptr && node.head()->rounds_in_flight() > 1) {
    Count(Sometimes::kRoundsInFlight);
  }
}

void Checker::OnHalted(const SimNode& node) {
  const auto left = running_.lower_bound({node.number(), AttemptKey()});
  if (left == running_.end() || left->first.first != node.number()) return;
  Fail(41, absl::StrCat(NameOf(left->first.second), " heard no end from ", node.id().value(),
                        ", whose shard is gone"));
}

void Checker::OnOtherCell(const StepKey& step, int32_t position) {
  Fail(44, absl::StrCat(NameOf(step.attempt), " step ", step.step.value(), ": position ", position,
                        " is in a shared page that holds another row"));
}

void Checker::OnPlanTaken(const SimNode& node, const StagePeer& from, bool is_staged) {
  plans_staged_.erase({node.number(), from});
  if (is_staged) plans_staged_[{node.number(), from}] = false;
}

void Checker::OnBundleTaken(const SimNode& node, const StagePeer& from, bool is_promoted) {
  const auto plan = plans_staged_.find({node.number(), from});
  if (plan == plans_staged_.end()) return;
  if (is_promoted && plan->second) {
    Fail(43, absl::StrCat(node.id().value(), " promotes what it prepared for ", from.node.value(),
                          " although a failure came between"));
  }
  plans_staged_.erase(plan);
}

void Checker::CountPrefix(const SimNode& node, const OpenAttempt& open) {
  const HotKvManager& kv = node.stage()->kv();
  const int32_t found = kv.CachedTokensOf(open.key);
  if (found == 0) return;
  const auto asked = static_cast<int32_t>(open.prefix_keys.size()) * kPageTokens;
  Count(found < asked ? Sometimes::kPrefixPartlyHit : Sometimes::kPrefixHit);
  if (node.stage()->attempts_open() > 1) Count(Sometimes::kPageShared);
}

void Checker::CheckPages(const SimNode& node, const JobSlice& slice) {
  const HotKvManager& kv = node.stage()->kv();
  const auto own = kv.Resolve(slice.key.attempt, kv.LengthOf(slice.key.attempt));
  if (!own.ok() || slice.pages.size() > own->size() ||
      !std::equal(slice.pages.begin(), slice.pages.end(), own->begin())) {
    Fail(43, absl::StrCat(NameOf(slice.key.attempt), " step ", slice.key.step.value(), " at ",
                          node.id().value(), " computes on pages that are not its own"));
  }
}

}  // namespace shardline::sim
