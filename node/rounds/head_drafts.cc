// What a head guesses ahead: the drafts of the rows that go next.

#include <algorithm>
#include <utility>

#include "node/rounds/drafter.h"
#include "node/rounds/head_core.h"

namespace shardline {
namespace {

// A drafter reads a long text over many rows, so that no event waits for it.
constexpr int32_t kReadTokensMax = 512;

}  // namespace

std::unique_ptr<Drafter> HeadCore::MakeDrafter(const RunAttempt& run) const {
  if (!options_.drafts || run.no_drafts) return nullptr;
  return std::make_unique<Drafter>(
      options_.proposers ? options_.proposers(run) : DefaultProposers(),
      DraftPricer(options_.draft_pricer, {.step = run.step_cost, .row = run.row_cost}),
      options_.vocab_size);
}

// More of the text for the attempt's drafter; true if it has read all.
bool HeadCore::ReadOn(HeadAttempt& attempt) {
  const auto text = std::span<const int32_t>(attempt.tokens);
  const auto end = std::min(static_cast<int32_t>(text.size()), attempt.read + kReadTokensMax);
  const auto part = [&](int32_t from, int32_t to) {
    return text.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  };
  const int32_t prompt_end = std::clamp(attempt.prompt_count, attempt.read, end);
  attempt.drafter->Read(part(attempt.read, prompt_end));
  attempt.drafter->Accept(part(prompt_end, end));
  attempt.read = end;
  return end == static_cast<int32_t>(text.size());
}

HeadCore::DraftTurns HeadCore::TurnsOf(const HeadLane& lane, size_t ready,
                                       int32_t decoding_count) const {
  const LaneView view{.rounds_in_flight_max = lane.rounds_in_flight_max,
                      .decoding_count = decoding_count};
  const int32_t rows = std::min(static_cast<int32_t>(ready), DecodeRowsMax(view));
  int64_t filling = 0;
  for (const FillingPrompt& prompt : filling_view_) filling += prompt.tokens_left;
  const int64_t pieces = std::min<int64_t>(filling, options_.piece_tokens_decoding);
  return {.rows_left = rows, .rows_planned = rows + static_cast<int32_t>(pieces)};
}

// Never more than the request may still say, nor than its KV has room for.
int32_t HeadCore::DraftsMax(const HeadAttempt& attempt, int32_t generated, int32_t position) const {
  return std::min({attempt.run.new_tokens_max - generated, attempt.tokens_limit - position,
                   options_.bundle_tokens_max}) -
         1;
}

// Drafts for the rows that the next round takes, first come, first served, out of the rows that
// ride with it for free.
void HeadCore::DraftReady(HeadLane& lane) {
  DraftTurns turns = TurnsOf(lane, lane.ready.size(), static_cast<int32_t>(lane.decoding));
  for (HeadAttempt* attempt : lane.ready) {
    attempt->drafts.clear();
    if (turns.rows_left-- <= 0 || attempt->drafter == nullptr) continue;
    if (attempt->drafter->FreeRows(turns.rows_planned) == 0 || !ReadOn(*attempt)) continue;
    const int32_t drafts_max =
        DraftsMax(*attempt, static_cast<int32_t>(attempt->generated), attempt->sent);
    attempt->drafts =
        attempt->drafter->Propose(turns.rows_planned, drafts_max, attempt->run.stop_tokens);
    turns.rows_planned += static_cast<int32_t>(attempt->drafts.size());
  }
}

// How many drafts each row of ready_view_ will have, where `oldest` comes back next and all that it
// verifies is right. Asks the proposers and tells them nothing: who has text to read is left out.
void HeadCore::ForeseeDrafts(const HeadLane& lane, const HeadRound& oldest,
                             int32_t decoding_count) {
  DraftTurns turns = TurnsOf(lane, ready_view_.size(), decoding_count);
  for (ReadyRow& row : ready_view_) {
    const HeadAttempt& attempt = attempts_.find(row.attempt)->second;
    row.kind = RoundRowKind::kDecode;
    row.token_count = 1;
    if (turns.rows_left-- <= 0 || attempt.drafter == nullptr) continue;
    if (attempt.read != static_cast<int32_t>(attempt.tokens.size())) continue;
    const HeadFlight* const flight = FlightOf(attempt, oldest.walk);
    const int32_t coming = flight == nullptr ? 0 : 1 + static_cast<int32_t>(flight->drafts.size());
    const int32_t drafts_max =
        DraftsMax(attempt, static_cast<int32_t>(attempt.generated) + coming, row.position);
    const std::vector<int32_t>& stops = attempt.run.stop_tokens;
    const auto drafts = static_cast<int32_t>(
        flight == nullptr
            ? attempt.drafter->Propose(turns.rows_planned, drafts_max, stops).size()
            : attempt.drafter->Foresee(flight->drafts, turns.rows_planned, drafts_max, stops)
                  .size());
    if (drafts > 0) row.kind = RoundRowKind::kVerify;
    row.token_count += drafts;
    turns.rows_planned += drafts;
  }
}

}  // namespace shardline
