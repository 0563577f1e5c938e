#pragma once

// The model of the simulated cluster: a hash in place of a transformer.
//
// Every hidden state depends on every token before it through KV cells that are really written and
// read. A step applied twice, left out, or written into a foreign page shows in every token after
// it. ReferenceModel is the same without a cluster: what a session must say, whatever happens to
// the machines.

#include <array>
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

class ReferenceModel {
 public:
  // What a session generates that nothing disturbs: `count` tokens. Goes on from the cells of the
  // longest beginning that `prompt` shares with what was read last.
  std::vector<int32_t> Generate(std::span<const int32_t> prompt, const SamplingParams& sampling,
                                int32_t count);

 private:
  // The hidden state of the last layer.
  uint32_t Forward(int32_t token);

  std::vector<int32_t> read_;
  std::array<std::vector<uint32_t>, kLayersTotal> cells_;  // Of each of `read_`.
};

}  // namespace shardline::sim
