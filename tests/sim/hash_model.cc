#include "tests/sim/hash_model.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.h"
#include "node/sampling/sampler.h"

namespace shardline::sim {

void FillLogits(uint32_t hidden, std::span<float> logits) {
  for (uint32_t token = 0; token < logits.size(); ++token) {
    logits[token] = static_cast<float>(MixCell(hidden, token) % 1000) / 100.0F;
  }
}

uint32_t ReferenceModel::Forward(int32_t token) {
  read_.push_back(token);
  uint32_t hidden = Embed(token);
  for (int32_t layer = 0; layer < kLayersTotal; ++layer) {
    std::vector<uint32_t>& cells = cells_[static_cast<size_t>(layer)];
    cells.push_back(hidden);
    hidden = MixCell(static_cast<uint32_t>(layer), hidden);
    for (const uint32_t cell : cells) hidden = MixCell(hidden, cell);
  }
  return hidden;
}

std::vector<int32_t> ReferenceModel::Generate(std::span<const int32_t> prompt,
                                              const SamplingParams& sampling, int32_t count) {
  // The last token is always read: it makes the hidden state.
  const auto last = prompt.empty() ? prompt.end() : std::prev(prompt.end());
  const auto [known, unread] = std::mismatch(read_.begin(), read_.end(), prompt.begin(), last);
  const auto shared = static_cast<size_t>(known - read_.begin());
  read_.resize(shared);
  for (std::vector<uint32_t>& cells : cells_) cells.resize(shared);
  uint32_t hidden = 0;
  for (auto token = unread; token != prompt.end(); ++token) hidden = Forward(*token);

  Sampler sampler(sampling, kVocabSize, prompt, {});
  std::vector<int32_t> generated;
  while (static_cast<int32_t>(generated.size()) < count) {
    if (!generated.empty()) hidden = Forward(generated.back());
    std::array<float, kVocabSize> logits;
    FillLogits(hidden, logits);
    const absl::StatusOr<SampledToken> token = sampler.Sample(logits, generated.size());
    SL_CHECK(token.ok());
    generated.push_back(token->token);
  }
  return generated;
}

}  // namespace shardline::sim
