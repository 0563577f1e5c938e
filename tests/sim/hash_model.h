#pragma once

// The model of the simulated cluster: a hash in place of a transformer.
//
// Every hidden state depends on every token before it through KV cells that are really written and
// read. A step applied twice, left out, or written into a foreign page shows in every token after
// it. ReferenceTokens is the same model without a cluster: what a session must say, whatever
// happens to the machines.

#include <cstdint>
#include <span>
#include <vector>

#include "node/sampling/sampling_params.h"

namespace shardline::sim {

inline constexpr int32_t kHiddenDim = 1;
inline constexpr int32_t kVocabSize = 16;
inline constexpr int32_t kLayersTotal = 4;

// Below 2^24, so that a float carries it exactly.
inline uint32_t MixCell(uint32_t a, uint32_t b) {
  uint64_t x = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return static_cast<uint32_t>(x >> 40);
}

inline uint32_t Embed(int32_t token) { return MixCell(77, static_cast<uint32_t>(token)); }

// One logit for each token.
void FillLogits(uint32_t hidden, std::span<float> logits);

// What a session generates that nothing disturbs: `count` tokens.
std::vector<int32_t> ReferenceTokens(std::span<const int32_t> prompt,
                                     const SamplingParams& sampling, int32_t count);

}  // namespace shardline::sim
