// What a head prepares while a round runs: the next one of its lane, as it will be if every row
// goes on by its token and all its drafts.

#include <algorithm>
#include <memory>
#include <utility>

#include "base/version.h"
#include "node/rounds/head_core.h"

namespace shardline {
namespace {

// The keys of whole pages are over their tokens, and those that are being verified are not known.
bool KnowsPagesBelow(const HeadAttempt& attempt, int32_t position) {
  const auto pages = static_cast<size_t>(position / kPageTokens);
  return attempt.run.prefix_root.empty() || pages * kPageTokens <= attempt.tokens.size();
}

}  // namespace

// To be called when nothing more can be sent.
void HeadCore::StageNext(HeadLane& lane) {
  if (!options_.stages_ahead || !std::exchange(lane.may_stage, false)) return;
  RoundPlan plan = Predict(lane);
  if (plan.rows.empty()) return;
  plan.walk = walk_next_;
  if (lane.stage == nullptr) lane.stage = MakeStage();
  if (!lane.stage->guard.Stage(plan).ok()) return;
  ++stats_.rounds_staged;
  // The own stage keeps one plan of its head's.
  if (lanes_.size() > 1) return;
  std::vector<BundleRow> rows;
  rows.reserve(plan.rows.size());
  for (const RowHeader& header : lane.stage->rows.rows()) rows.push_back(header.row);
  actions_.plan = std::move(rows);
}

std::unique_ptr<LaneStage> HeadCore::MakeStage() {
  return std::make_unique<LaneStage>(
      &slots_,
      [this](const AttemptKey& key) -> std::optional<SamplerLease> {
        const auto it = attempts_.find(key);
        if (it == attempts_.end()) return std::nullopt;
        return it->second.lease;
      },
      [this](const RoundRow& row) -> std::optional<RowHeader> {
        const auto it = attempts_.find(row.attempt);
        if (it == attempts_.end() || it->second.step_next != row.step.value() ||
            it->second.sent != row.position || !KnowsPagesBelow(it->second, row.position)) {
          return std::nullopt;
        }
        return HeaderOf(it->second, row);
      });
}

// The oldest round that is not over comes back next, and what it verifies is right.
RoundPlan HeadCore::Predict(const HeadLane& lane) {
  const auto found = std::find_if(lane.rounds.begin(), lane.rounds.end(),
                                  [](const HeadRound& round) { return !round.is_over(); });
  if (found == lane.rounds.end()) return {};
  const HeadRound& oldest = *found;
  ViewReady(lane);
  auto decoding_count = static_cast<int32_t>(lane.decoding);
  for (const AttemptKey& key : oldest.attempts) {
    const auto it = attempts_.find(key);
    if (it == attempts_.end()) continue;
    const HeadAttempt& attempt = it->second;
    const HeadFlight* flight = FlightOf(attempt, oldest.walk);
    if (flight == nullptr || !flight->is_sampled()) continue;
    if (!attempt.is_decoding) ++decoding_count;
    const size_t drafts = flight->drafts.size();
    const bool ends =
        attempt.generated + 1 + drafts >= static_cast<uint32_t>(attempt.run.new_tokens_max) ||
        static_cast<int32_t>(attempt.tokens.size() + drafts) >= attempt.tokens_limit;
    if (ends) {
      --decoding_count;
      continue;
    }
    ready_view_.push_back({.attempt = key,
                           .step = StepIndex(attempt.step_next),
                           .position = attempt.sent,
                           .slot = attempt.lease->slot});
  }
  ViewFilling(lane, oldest.walk);
  if (options_.drafts) ForeseeDrafts(lane, oldest, decoding_count);
  return ComposeRound({.lane = lane.id,
                       .rounds_in_flight_max = lane.rounds_in_flight_max,
                       .decoding_count = decoding_count,
                       .ready = ready_view_,
                       .filling = filling_view_},
                      Limits());
}

// In the ring, or being drawn from.
const HeadFlight* HeadCore::FlightOf(const HeadAttempt& attempt, uint64_t walk) {
  if (attempt.finishing && attempt.finishing->walk == walk) return &*attempt.finishing;
  const auto flight = std::find_if(attempt.flights.begin(), attempt.flights.end(),
                                   [&](const HeadFlight& f) { return f.walk == walk; });
  return flight == attempt.flights.end() ? nullptr : &*flight;
}

// Before the round touches anything: what was prepared for it, if it is the round it was for.
std::vector<RowHeader> HeadCore::Promote(HeadLane& lane, const RoundPlan& plan) {
  lane.may_stage = true;
  if (lane.stage == nullptr || !lane.stage->guard.staged()) return {};
  const uint64_t refused = lane.stage->guard.stats().refused;
  if (!lane.stage->guard.Dispatch(plan)) {
    const bool is_refused = lane.stage->guard.stats().refused > refused;
    ++(is_refused ? stats_.rounds_refused : stats_.rounds_displaced);
    return {};
  }
  ++stats_.rounds_promoted;
  return lane.stage->rows.TakeRows();
}

void HeadCore::DropStage(HeadLane& lane) {
  lane.may_stage = true;
  if (lane.stage == nullptr || !lane.stage->guard.staged()) return;
  lane.stage->guard.Drop();
  ++stats_.rounds_dropped;
  actions_.plan.reset();
  actions_.plan_is_off = true;
}

// A stage that has a row of the attempt is of no use, now that the attempt ends or starts anew.
void HeadCore::DropStageOf(const HeadAttempt& attempt) {
  HeadLane& lane = attempt.lane->second;
  if (lane.stage == nullptr || !lane.stage->guard.staged()) return;
  const std::vector<RoundRow>& rows = lane.stage->guard.staged()->rows;
  const bool is_named = std::any_of(rows.begin(), rows.end(), [&](const RoundRow& row) {
    return row.attempt == attempt.run.key;
  });
  if (is_named) DropStage(lane);
}

size_t HeadCore::stages_standing() const {
  size_t count = 0;
  for (const auto& [ring, lane] : lanes_) {
    if (lane.stage != nullptr && lane.stage->guard.staged()) ++count;
  }
  return count;
}

}  // namespace shardline
