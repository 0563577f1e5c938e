#include "node/rounds/drafter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "node/rounds/prompt_lookup.h"
#include "node/rounds/suffix_index.h"

namespace shardline {
namespace {

// A proposer's own word counts as so many tries; beyond kTriesMax the older half is forgotten, as
// texts change.
constexpr float kPriorTries = 2.0F;
constexpr float kTriesMax = 48.0F;

}  // namespace

Drafter::Drafter(std::vector<std::unique_ptr<Proposer>> proposers, DraftPricer pricer,
                 int32_t vocab_size)
    : vocab_size_(vocab_size), pricer_(pricer) {
  for (std::unique_ptr<Proposer>& proposer : proposers) {
    SL_CHECK(proposer != nullptr);
    entries_.push_back({.proposer = std::move(proposer), .records = {}});
  }
}

void Drafter::Read(std::span<const int32_t> prompt) {
  for (Entry& entry : entries_) entry.proposer->Accept(prompt);
}

void Drafter::Accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    for (Entry& entry : entries_) {
      const std::vector<Draft> said = entry.proposer->Propose(1);
      if (!said.empty()) {
        Record& record = entry.records[LevelOf(said.front().chance)];
        record.tries += 1.0F;
        record.hits += said.front().token == token ? 1.0F : 0.0F;
        if (record.tries >= kTriesMax) record = {record.hits / 2, record.tries / 2};
      }
      entry.proposer->Accept({&token, 1});
    }
  }
}

size_t Drafter::LevelOf(float chance) {
  const float level = std::clamp(chance, 0.0F, 1.0F) * static_cast<float>(kLevels);
  return std::min(static_cast<size_t>(level), kLevels - 1);
}

float Drafter::Calibrated(const Entry& entry, float chance) {
  const Record& record = entry.records[LevelOf(chance)];
  return (record.hits + kPriorTries * std::clamp(chance, 0.0F, 1.0F)) /
         (record.tries + kPriorTries);
}

std::vector<int32_t> Drafter::Propose(int32_t rows_planned, int32_t drafts_max,
                                      std::span<const int32_t> stops) const {
  const int32_t count = std::min(drafts_max, pricer_.FreeRows(rows_planned));
  const auto guess = [count](const Proposer& proposer) {
    return proposer.Propose(static_cast<size_t>(count));
  };
  return Choose(guess, count, rows_planned, stops);
}

std::vector<int32_t> Drafter::Foresee(std::span<const int32_t> said, int32_t rows_planned,
                                      int32_t drafts_max, std::span<const int32_t> stops) const {
  const int32_t count = std::min(drafts_max, pricer_.FreeRows(rows_planned));
  const auto guess = [count, said](const Proposer& proposer) {
    std::vector<Draft> drafts = proposer.Propose(said.size() + 1 + static_cast<size_t>(count));
    const bool is_told =
        drafts.size() > said.size() &&
        std::equal(said.begin(), said.end(), drafts.begin(),
                   [](int32_t token, const Draft& draft) { return token == draft.token; });
    if (!is_told) return std::vector<Draft>();
    const auto behind = drafts.begin() + static_cast<std::ptrdiff_t>(said.size()) + 1;
    return std::vector<Draft>(behind, drafts.end());
  };
  return Choose(guess, count, rows_planned, stops);
}

std::vector<int32_t> Drafter::Choose(Guess guess, int32_t count, int32_t rows_planned,
                                     std::span<const int32_t> stops) const {
  std::vector<Draft> best;
  float best_expected = 0.0F;
  for (const Entry& entry : entries_) {
    if (count <= 0) break;
    std::vector<Draft> drafts = guess(*entry.proposer);
    drafts.resize(std::min(drafts.size(), static_cast<size_t>(count)));
    const auto stop = std::find_if(drafts.begin(), drafts.end(), [&](const Draft& draft) {
      return draft.token < 0 || draft.token >= vocab_size_ ||
             std::find(stops.begin(), stops.end(), draft.token) != stops.end();
    });
    drafts.erase(stop, drafts.end());
    float chance = 1.0F;
    float expected = 0.0F;
    for (Draft& draft : drafts) {
      draft.chance = Calibrated(entry, draft.chance);
      chance *= draft.chance;
      expected += chance;
    }
    if (expected <= best_expected) continue;
    best_expected = expected;
    best = std::move(drafts);
  }
  std::vector<int32_t> tokens;
  const size_t priced = pricer_.Price(best, rows_planned);
  for (size_t i = 0; i < priced; ++i) tokens.push_back(best[i].token);
  return tokens;
}

std::vector<std::unique_ptr<Proposer>> DefaultProposers() {
  std::vector<std::unique_ptr<Proposer>> proposers;
  proposers.push_back(std::make_unique<PromptLookup>());
  proposers.push_back(std::make_unique<SuffixIndex>());
  return proposers;
}

}  // namespace shardline
