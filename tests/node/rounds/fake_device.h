#pragma once

// A device whose model is a hash: every hidden state depends on every token before it, through
// KV cells that are really written and read through the page table. A step applied twice, left
// out, or written into a foreign page shows in every token after it.

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "base/layer_range.h"
#include "node/stage/compute_job.h"

namespace shardline::testing {

inline constexpr int32_t kFakeHiddenDim = 2;
inline constexpr int32_t kFakeVocabSize = 48;

uint32_t FakeEmbed(int32_t token);
// One layer for one token: `cache` are the layer's cells of positions 0 … p, p's included.
uint32_t FakeLayer(int32_t layer, uint32_t hidden, const std::vector<uint32_t>& cache);
std::vector<float> FakeLogits(uint32_t hidden);

struct FakeRequest {
  std::vector<int32_t> prompt;
  int32_t new_tokens_max = 0;
  SamplingParams sampling;
  std::vector<int32_t> stop_tokens;
};

// A prompt of up to 40 tokens with up to `new_tokens_max` to come, sampled in any way.
FakeRequest DrawRequest(std::mt19937& random, int32_t new_tokens_max);

// Where `layers` layers are cut for `stages` stages: 0, the cuts between, `layers`.
std::vector<int32_t> DrawCuts(std::mt19937& random, int stages, int32_t layers);

// What a model of `layers` layers answers when it is run plainly: no pages, no steps, no ring.
std::vector<int32_t> PlainTokens(const FakeRequest& request, int32_t layers);

class FakeDevice {
 public:
  FakeDevice(LayerRange layers, int32_t pages_total);

  // Runs the job now. A step that ran here before is counted in `repeats`.
  ComputeDone Run(const ComputeJob& job);

  int repeats() const { return repeats_; }

 private:
  void RunLayers(const ComputeJob& job, ComputeDone& done);
  uint32_t& Cell(int32_t layer, const std::vector<int32_t>& pages, int32_t position);

  const LayerRange layers_;
  std::vector<uint32_t> cells_;  // [layers, pages, page_tokens]
  const int32_t pages_total_;
  std::set<StepKey> seen_;
  int repeats_ = 0;
};

}  // namespace shardline::testing
