// How a head composes rounds and sends them.

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/version.h"
#include "node/rounds/head_core.h"

namespace shardline {
namespace {

// Of an attempt: the first decode step and one of so many tokens asks every stage for its time.
constexpr int32_t kTokensPerTiming = 32;

}  // namespace

size_t HeadLane::rounds_in_flight() const {
  size_t count = 0;
  bool is_behind_sampling = false;
  for (const HeadRound& round : rounds) {
    is_behind_sampling = is_behind_sampling || round.rows_sampling > 0;
    if (is_behind_sampling || !round.is_over()) ++count;
  }
  return count;
}

// Whatever may go on goes on: at the end of every event.
void HeadCore::Advance(Instant now) {
  if (!halted_.ok()) return;
  Admit(now);
  StartFinish();
  for (auto& [ring, lane] : lanes_) {
    while (lane.rounds_in_flight() < static_cast<size_t>(lane.rounds_in_flight_max)) {
      if (!BeginRound(lane, now)) break;
    }
    StageNext(lane);
  }
}

bool HeadCore::BeginRound(HeadLane& lane, Instant now) {
  RoundPlan plan = Compose(lane);
  if (plan.rows.empty()) return false;
  plan.walk = walk_next_++;
  Dispatch(lane, plan, now);
  return true;
}

RoundLimits HeadCore::Limits() const {
  return {.rows_max = static_cast<int32_t>(options_.bundle_rows_max),
          .tokens_max = options_.bundle_tokens_max,
          .piece_tokens_max = options_.chunk_tokens_max,
          .piece_tokens_decoding = options_.piece_tokens_decoding,
          .piece_tokens_idle = options_.piece_tokens_idle};
}

RoundPlan HeadCore::Compose(HeadLane& lane) {
  ViewFilling(lane);
  if (options_.drafts) DraftReady(lane);
  ViewReady(lane);
  return ComposeRound({.lane = lane.id,
                       .rounds_in_flight_max = lane.rounds_in_flight_max,
                       .decoding_count = static_cast<int32_t>(lane.decoding),
                       .ready = ready_view_,
                       .filling = filling_view_},
                      Limits());
}

void HeadCore::ViewReady(const HeadLane& lane) {
  ready_view_.clear();
  for (const HeadAttempt* attempt : lane.ready) {
    const bool has_drafts = !attempt->drafts.empty();
    ready_view_.push_back({.attempt = attempt->run.key,
                           .step = StepIndex(attempt->step_next),
                           .kind = has_drafts ? RoundRowKind::kVerify : RoundRowKind::kDecode,
                           .position = attempt->sent,
                           .token_count = 1 + static_cast<int32_t>(attempt->drafts.size()),
                           .rejected = attempt->rejected,
                           .slot = attempt->lease->slot,
                           .rounds_waited = lane.rounds_begun - attempt->rounds_at_ready});
  }
}

// Tenants in turn after the one served last: the first prompt of each, then the second of each ….
void HeadCore::ViewFilling(const HeadLane& lane, std::optional<uint64_t> coming_back) {
  filling_view_.clear();
  turns_.clear();
  auto tenant = lane.tenants.upper_bound(lane.served_last);
  for (size_t seen = 0; seen < lane.tenants.size(); ++seen, ++tenant) {
    if (tenant == lane.tenants.end()) tenant = lane.tenants.begin();
    if (!tenant->second.filling.empty()) turns_.push_back(&tenant->second.filling);
  }
  const int32_t pieces_max = std::min(lane.rounds_in_flight_max, options_.chunks_in_flight);
  const auto add = [&](const HeadAttempt& attempt) {
    auto pieces = static_cast<int32_t>(attempt.flights.size());
    if (coming_back && FlightOf(attempt, *coming_back) != nullptr) --pieces;
    if (pieces >= pieces_max || attempt.resend_at) return;
    filling_view_.push_back({.attempt = attempt.run.key,
                             .step = StepIndex(attempt.step_next),
                             .position = attempt.sent,
                             .tokens_left = attempt.prefix_count - attempt.sent,
                             .slot = attempt.lease->slot});
  };
  next_in_turn_.clear();
  for (const auto* prompts : turns_) next_in_turn_.push_back(prompts->begin());
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (next_in_turn_[i] == turns_[i]->end()) continue;
      add(**next_in_turn_[i]++);
      any = true;
    }
  }
}

void HeadCore::Dispatch(HeadLane& lane, const RoundPlan& plan, Instant now) {
  std::vector<RowHeader> headers = Promote(lane, plan);
  HeadRound round{.walk = plan.walk, .rows_out = static_cast<int32_t>(plan.rows.size())};
  round.attempts.reserve(plan.rows.size());
  int32_t token_count = 0;
  for (const RoundRow& row : plan.rows) token_count += row.token_count;
  // What needs memory comes first: a round is known whole, or not at all.
  lane.rounds.reserve(lane.rounds.size() + 1);
  actions_.steps.reserve(actions_.steps.size() + 1);
  StageBundle bundle;
  bundle.rows.reserve(plan.rows.size());
  bundle.tokens.reserve(static_cast<size_t>(token_count));
  for (const RoundRow& row : plan.rows) {
    HeadFlight flight{.step = row.step,
                      .kind = row.kind,
                      .walk = plan.walk,
                      .sent = now,
                      .position = row.position,
                      .token_count = row.token_count,
                      .round_tokens = token_count,
                      .piece_rounds_ahead = piece_rounds_};
    if (flight.is_piece()) ++round.pieces_out;
    if (flight.is_piece()) stats_.piece_tokens += static_cast<uint64_t>(row.token_count);
    if (!flight.is_piece()) ++stats_.decode_rows;
    const auto it = attempts_.find(row.attempt);
    SL_CHECK(it != attempts_.end());
    const size_t index = round.attempts.size();
    round.attempts.push_back(row.attempt);
    if (index >= headers.size()) headers.push_back(HeaderOf(it->second, row));
    SendRow(it->second, headers[index], std::move(flight), bundle);
  }
  if (round.pieces_out > 0) ++piece_rounds_;
  lane.rounds.push_back(std::move(round));
  ++lane.rounds_begun;
  ++stats_.rounds;
  stats_.rows += plan.rows.size();
  const auto size_class = static_cast<size_t>(std::bit_width(plan.rows.size() - 1));
  ++stats_.rounds_of_rows[std::min(size_class, stats_.rounds_of_rows.size() - 1)];
  actions_.steps.push_back(std::move(bundle));
}

void HeadCore::SendRow(HeadAttempt& attempt, const RowHeader& header, HeadFlight flight,
                       StageBundle& bundle) {
  SL_CHECK(flight.step == StepIndex(attempt.step_next));
  SL_CHECK(flight.position == attempt.sent);
  bundle.rows.push_back(header.row);
  bundle.rows.back().budget = attempt.deadline - flight.sent;
  attempt.chain = header.chain;
  attempt.chain_pages = header.chain_pages;
  flight.drafts = std::exchange(attempt.drafts, {});
  const auto first = attempt.tokens.begin() + flight.position;
  const auto own = flight.token_count - static_cast<int32_t>(flight.drafts.size());
  bundle.tokens.insert(bundle.tokens.end(), first, first + own);
  bundle.tokens.insert(bundle.tokens.end(), flight.drafts.begin(), flight.drafts.end());
  if (attempt.step_next == 0) TellProgress(attempt, attempt.sent);
  attempt.sent += flight.token_count;
  const bool is_piece = flight.is_piece();
  attempt.flights.push_back(std::move(flight));
  ++attempt.step_next;
  attempt.rejected = 0;
  ++attempt.timings.rounds;
  ++stats_.steps_sent;
  if (is_piece) attempt.lane->second.served_last = attempt.run.tenant;
  if (is_piece && attempt.drafter != nullptr) ReadOn(attempt);
  const bool has_more = attempt.sent < attempt.prefix_count;
  Move(attempt, has_more ? attempt.tenant->filling : attempt.spot);
}

// With the key of the page that ends at or before its position, once, if the stages lack it. What
// it needs is known as soon as the step before is on its way.
RowHeader HeadCore::HeaderOf(const HeadAttempt& attempt, const RoundRow& row) {
  RowHeader header{.chain = attempt.chain, .chain_pages = attempt.chain_pages};
  uint32_t flags = row.kind == RoundRowKind::kPiece ? 0 : kRowWantsLogits;
  if (row.kind == RoundRowKind::kVerify) flags = kRowWantsAllLogits;
  const bool is_decode = row.kind == RoundRowKind::kDecode || row.kind == RoundRowKind::kVerify;
  if (is_decode && (row.position - attempt.prefix_count) % kTokensPerTiming == 0) {
    flags |= kRowWantsStageTimes;
  }
  header.row = {.key = {.attempt = row.attempt, .step = row.step},
                .position = row.position,
                .token_count = row.token_count,
                .hop = 0,
                .flags = flags,
                .rejected = row.rejected};
  if (attempt.run.prefix_root.empty()) return header;
  while (header.chain_pages < row.position / kPageTokens) {
    const size_t from = static_cast<size_t>(header.chain_pages) * kPageTokens;
    header.chain =
        PrefixNext(header.chain, absl::MakeConstSpan(attempt.tokens).subspan(from, kPageTokens));
    if (header.chain_pages++ >= attempt.open_pages) header.row.prefix_key = header.chain;
  }
  return header;
}

void HeadCore::Move(HeadAttempt& attempt, std::list<HeadAttempt*>& to) {
  to.splice(to.end(), *attempt.list, attempt.node);
  attempt.list = &to;
}

// The own stage has kept what they left behind, and passes it on once more.
void HeadCore::SendAgain(Instant now) {
  StageBundle bundle;
  const auto flush = [&] {
    if (!bundle.rows.empty()) actions_.steps.push_back(std::exchange(bundle, {}));
  };
  for (auto& [key, attempt] : attempts_) {
    if (!attempt.resend_at || *attempt.resend_at > now) continue;
    attempt.resend_at.reset();
    attempt.resent_below = StepIndex(attempt.step_next);
    for (HeadFlight& flight : attempt.flights) {
      if (!flight.is_piece()) continue;
      const size_t token_count = bundle.tokens.size() + static_cast<size_t>(flight.token_count);
      if (bundle.rows.size() >= options_.bundle_rows_max ||
          token_count > static_cast<size_t>(options_.bundle_tokens_max)) {
        flush();
      }
      flight.sent = now;
      bundle.rows.push_back({.key = {.attempt = key, .step = flight.step},
                             .position = flight.position,
                             .token_count = flight.token_count,
                             .hop = 0,
                             .budget = attempt.deadline - now,
                             .flags = flight.is_sampled() ? kRowWantsLogits : 0});
      const auto first = attempt.tokens.begin() + flight.position;
      bundle.tokens.insert(bundle.tokens.end(), first, first + flight.token_count);
      ++stats_.steps_resent;
    }
  }
  flush();
}

void HeadCore::LeaveRing(HeadLane& lane, const HeadFlight& flight) {
  HeadRound* round = FindRound(lane, flight.walk);
  if (round == nullptr) return;
  --round->rows_out;
  if (flight.is_piece() && --round->pieces_out == 0) --piece_rounds_;
  ForgetGone(lane);
}

void HeadCore::LeaveSampling(HeadLane& lane, const HeadFlight& flight, bool is_sampled) {
  HeadRound* round = FindRound(lane, flight.walk);
  if (round == nullptr) return;
  --round->rows_sampling;
  if (is_sampled) ++round->rows_sampled;
  ForgetGone(lane);
}

// None for a step that waits to be sent again: it is of no round.
HeadRound* HeadCore::FindRound(HeadLane& lane, uint64_t walk) {
  for (HeadRound& round : lane.rounds) {
    if (round.walk == walk) return &round;
  }
  return nullptr;
}

void HeadCore::ForgetGone(HeadLane& lane) {
  bool is_behind_sampling = false;
  std::erase_if(lane.rounds, [&](const HeadRound& round) {
    is_behind_sampling = is_behind_sampling || round.rows_sampling > 0;
    return !is_behind_sampling && round.is_gone();
  });
}

}  // namespace shardline
