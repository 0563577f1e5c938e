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
      DraftPricer(options_.draft_pricer, {.step = run.step_cost, .row = run.row_cost}));
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

// Drafts for the rows that the next round takes, first come, first served, out of the rows that
// ride with it for free. Never more than the request may still say, nor than its KV has room for.
void HeadCore::DraftReady(HeadLane& lane) {
  const LaneView view{.rounds_in_flight_max = lane.rounds_in_flight_max,
                      .decoding_count = static_cast<int32_t>(lane.decoding)};
  int32_t rows_left = std::min(static_cast<int32_t>(lane.ready.size()), DecodeRowsMax(view));
  int64_t filling = 0;
  for (const FillingPrompt& prompt : filling_view_) filling += prompt.tokens_left;
  const int64_t pieces = std::min<int64_t>(filling, options_.piece_tokens_decoding);
  int32_t rows_planned = rows_left + static_cast<int32_t>(pieces);
  for (HeadAttempt* attempt : lane.ready) {
    attempt->drafts.clear();
    if (rows_left-- <= 0 || attempt->drafter == nullptr) continue;
    if (attempt->drafter->FreeRows(rows_planned) == 0 || !ReadOn(*attempt)) continue;
    const int32_t new_tokens =
        attempt->run.new_tokens_max - static_cast<int32_t>(attempt->generated);
    const int32_t room =
        std::min({new_tokens, attempt->tokens_limit - attempt->sent, options_.bundle_tokens_max});
    attempt->drafts = attempt->drafter->Propose(rows_planned, room - 1, attempt->run.stop_tokens);
    rows_planned += static_cast<int32_t>(attempt->drafts.size());
  }
}

}  // namespace shardline
