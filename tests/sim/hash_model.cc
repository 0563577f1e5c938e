#include "tests/sim/hash_model.h"

#include <array>

#include "base/check.h"
#include "node/sampling/sampler.h"

namespace shardline::sim {

void FillLogits(uint32_t hidden, std::span<float> logits) {
  for (uint32_t token = 0; token < logits.size(); ++token) {
    logits[token] = static_cast<float>(MixCell(hidden, token) % 1000) / 100.0F;
  }
}

std::vector<int32_t> ReferenceTokens(std::span<const int32_t> prompt,
                                     const SamplingParams& sampling, int32_t count) {
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  Sampler sampler(sampling, kVocabSize, prompt, {});
  std::array<std::vector<uint32_t>, kLayersTotal> cells;
  std::vector<int32_t> generated;
  uint32_t hidden = 0;
  const auto forward = [&](int32_t token) {
    hidden = Embed(token);
    for (int32_t layer = 0; layer < kLayersTotal; ++layer) {
      std::vector<uint32_t>& cache = cells[static_cast<size_t>(layer)];
      cache.push_back(hidden);
      hidden = MixCell(static_cast<uint32_t>(layer), hidden);
      for (const uint32_t cell : cache) hidden = MixCell(hidden, cell);
    }
  };
  for (const int32_t token : tokens) forward(token);
  while (static_cast<int32_t>(generated.size()) < count) {
    std::array<float, kVocabSize> logits;
    FillLogits(hidden, logits);
    const absl::StatusOr<SampledToken> token = sampler.Sample(logits, generated.size());
    SL_CHECK(token.ok());
    generated.push_back(token->token);
    forward(token->token);
  }
  return generated;
}

}  // namespace shardline::sim
