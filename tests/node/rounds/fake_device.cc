#include "tests/node/rounds/fake_device.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/version.h"

namespace shardline::testing {
namespace {

// Below 2^24, so that a float carries it exactly.
uint32_t Mix(uint32_t a, uint32_t b) {
  uint64_t x = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return static_cast<uint32_t>(x >> 40);
}

}  // namespace

uint32_t FakeEmbed(int32_t token) { return Mix(77, static_cast<uint32_t>(token)); }

uint32_t FakeLayer(int32_t layer, uint32_t hidden, const std::vector<uint32_t>& cache) {
  uint32_t out = Mix(static_cast<uint32_t>(layer), hidden);
  for (const uint32_t cell : cache) out = Mix(out, cell);
  return out;
}

std::vector<float> FakeLogits(uint32_t hidden) {
  std::vector<float> logits;
  for (uint32_t token = 0; token < kFakeVocabSize; ++token) {
    logits.push_back(static_cast<float>(Mix(hidden, token) % 1000) / 100.0F);
  }
  return logits;
}

FakeRequest DrawRequest(std::mt19937& random, int32_t new_tokens_max) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  FakeRequest request;
  for (int i = pick(1, 40); i > 0; --i) request.prompt.push_back(pick(0, kFakeVocabSize - 1));
  request.new_tokens_max = pick(1, new_tokens_max);
  SamplingParams& sampling = request.sampling;
  sampling.seed = random();
  if (pick(0, 1) == 0) sampling.temperature = 0.8F;
  if (pick(0, 2) == 0) sampling.top_k = 10;
  if (pick(0, 2) == 0) sampling.presence_penalty = 1.5F;
  if (pick(0, 2) == 0) sampling.repetition_penalty = 1.3F;
  if (pick(0, 2) == 0) request.stop_tokens = {3, 5, 7};
  return request;
}

std::vector<int32_t> DrawCuts(std::mt19937& random, int stages, int32_t layers) {
  std::vector<int32_t> cuts = {0, layers};
  while (static_cast<int>(cuts.size()) < stages + 1) {
    const int32_t cut = std::uniform_int_distribution<int32_t>(1, layers - 1)(random);
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<int32_t> PlainTokens(const FakeRequest& request, int32_t layers) {
  std::vector<std::vector<uint32_t>> cache(static_cast<size_t>(layers));
  const auto forward = [&](int32_t token) {
    uint32_t h = FakeEmbed(token);
    for (int32_t layer = 0; layer < layers; ++layer) {
      cache[static_cast<size_t>(layer)].push_back(h);
      h = FakeLayer(layer, h, cache[static_cast<size_t>(layer)]);
    }
    return h;
  };
  uint32_t h = 0;
  for (const int32_t token : request.prompt) h = forward(token);
  Sampler sampler(request.sampling, kFakeVocabSize, request.prompt, {});
  std::vector<int32_t> tokens;
  while (static_cast<int32_t>(tokens.size()) < request.new_tokens_max) {
    std::vector<float> logits = FakeLogits(h);
    const int32_t token = sampler.Sample(logits, tokens.size())->token;
    const auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    tokens.push_back(token);
    h = forward(token);
  }
  return tokens;
}

FakeDevice::FakeDevice(LayerRange layers, int32_t pages_total)
    : layers_(layers),
      cells_(static_cast<size_t>(layers.count() * pages_total * kPageTokens), 0),
      pages_total_(pages_total) {}

uint32_t& FakeDevice::Cell(int32_t layer, const std::vector<int32_t>& pages, int32_t position) {
  const int32_t page = pages.at(static_cast<size_t>(position / kPageTokens));
  SL_CHECK(page >= 0 && page < pages_total_);
  const int32_t row = (layer - layers_.begin) * pages_total_ + page;
  return cells_.at(static_cast<size_t>(row * kPageTokens + position % kPageTokens));
}

ComputeDone FakeDevice::Run(const ComputeJob& job) {
  ComputeDone done{.id = job.id, .compute_time = absl::Milliseconds(1)};
  if (job.kind == JobKind::kLayers) {
    RunLayers(job, done);
    return done;
  }
  for (const SampleTarget& target : job.samples) {
    std::vector<float> logits;
    for (size_t i = 0; i <= target.drafts.size(); ++i) {
      const size_t row = static_cast<size_t>(target.row) + i;
      const std::vector<float> of_row =
          FakeLogits(static_cast<uint32_t>(job.hidden->floats()[row * kFakeHiddenDim]));
      logits.insert(logits.end(), of_row.begin(), of_row.end());
    }
    DrawnTokens drawn = target.sampler->SampleInTurn(logits, target.drafts, target.index);
    done.samples.push_back({.key = target.key,
                            .status = std::move(drawn.status),
                            .tokens = std::move(drawn.tokens),
                            .finished = drawn.finished});
  }
  return done;
}

void FakeDevice::RunLayers(const ComputeJob& job, ComputeDone& done) {
  int32_t row_count = 0;
  for (const JobSlice& slice : job.slices) row_count += slice.token_count;
  const std::shared_ptr<Buffer> hidden =
      Buffer::Allocate(static_cast<size_t>(row_count * kFakeHiddenDim) * sizeof(float));
  size_t row = 0;
  for (const JobSlice& slice : job.slices) {
    if (!seen_.insert(slice.key).second) ++repeats_;
    for (int32_t i = 0; i < slice.token_count; ++i, ++row) {
      uint32_t h = job.hidden == nullptr
                       ? FakeEmbed(job.tokens.at(row))
                       : static_cast<uint32_t>(job.hidden->floats()[row * kFakeHiddenDim]);
      for (int32_t layer = layers_.begin; layer < layers_.end; ++layer) {
        Cell(layer, slice.pages, slice.position + i) = h;
        std::vector<uint32_t> cache;
        for (int32_t p = 0; p <= slice.position + i; ++p) {
          cache.push_back(Cell(layer, slice.pages, p));
        }
        h = FakeLayer(layer, h, cache);
      }
      hidden->floats()[row * kFakeHiddenDim] = static_cast<float>(h);
      hidden->floats()[row * kFakeHiddenDim + 1] = static_cast<float>(h % 7);
    }
    done.slice_status.push_back(absl::OkStatus());
  }
  done.hidden = hidden;
}

}  // namespace shardline::testing
