#include "node/sampling/token_draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "kernels/exp_weights.h"

namespace shardline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// No more than the `count`-th largest logit: as many blocks have a maximum of at least this. Lets
// a top-k look at few tokens twice, and keeps every tie.
float LowerBoundOfBest(std::span<const float> logits, size_t count) {
  constexpr size_t kBlock = 64;
  std::vector<float> maxima;
  maxima.reserve(logits.size() / kBlock + 1);
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const std::span<const float> block = logits.subspan(i, std::min(kBlock, logits.size() - i));
    float max = -kInfinity;
    for (const float x : block) max = x > max ? x : max;
    maxima.push_back(max);
  }
  if (maxima.size() < count) return -kInfinity;
  const auto nth = maxima.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
  return *nth;
}

double SumOf(std::span<const float> sums) {
  double total = 0.0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

int32_t TokenDraw::Draw(const SamplingParams& params, std::span<const float> logits, float max,
                        float uniform) {
  const float scale = std::min(1.0F / params.temperature, std::numeric_limits<float>::max());
  const bool cuts_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();
  if (cuts_k) {
    TakeTopK(logits, static_cast<size_t>(params.top_k), max, scale);
    double total = 0.0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    if (params.top_p < 1.0F) CutTopP(static_cast<double>(params.top_p) * total);
  } else {
    const double total = Weigh(logits, max, scale);
    if (params.top_p < 1.0F) {
      TakeTopP(logits, static_cast<double>(params.top_p) * total, max, scale);
    } else if (params.min_p > 0.0F) {
      GatherWeights(logits, params.min_p);
    } else {
      return WalkBlocks(static_cast<double>(uniform) * total);
    }
  }
  return WalkCandidates(params.min_p, uniform);
}

float TokenDraw::LogSum(std::span<const float> logits, float max) {
  block_sums_.resize(static_cast<size_t>(WeightBlocks(static_cast<int64_t>(logits.size()))));
  cpu::ExpWeights({.logits = logits.data(),
                   .block_sums = block_sums_.data(),
                   .count = static_cast<int64_t>(logits.size()),
                   .max = max});
  return static_cast<float>(max + std::log(SumOf(block_sums_)));
}

std::vector<std::pair<int32_t, float>> TokenDraw::Best(std::span<const float> logits,
                                                       size_t count) {
  weights_.clear();
  Gather(logits, LowerBoundOfBest(logits, count));
  const size_t kept = std::min(count, candidates_.size());
  SelectBest(kept);
  std::vector<std::pair<int32_t, float>> best;
  for (size_t i = 0; i < kept; ++i) {
    best.emplace_back(candidates_[i].token, candidates_[i].logit);
  }
  return best;
}

double TokenDraw::Weigh(std::span<const float> logits, float max, float scale) {
  const auto count = static_cast<int64_t>(logits.size());
  weights_.resize(logits.size());
  block_sums_.resize(static_cast<size_t>(WeightBlocks(count)));
  cpu::ExpWeights({.logits = logits.data(),
                   .weights = weights_.data(),
                   .block_sums = block_sums_.data(),
                   .count = count,
                   .max = max,
                   .scale = scale});
  return SumOf(block_sums_);
}

void TokenDraw::Gather(std::span<const float> logits, float bound) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < bound || logits[i] == -kInfinity) continue;
    const double weight = weights_.empty() ? 0.0 : weights_[i];
    candidates_.push_back({logits[i], static_cast<int32_t>(i), weight});
  }
}

void TokenDraw::GatherWeights(std::span<const float> logits, float min_weight) {
  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] < min_weight) continue;
    candidates_.push_back({logits[i], static_cast<int32_t>(i), weights_[i]});
  }
}

void TokenDraw::TakeTopK(std::span<const float> logits, size_t count, float max, float scale) {
  weights_.clear();
  Gather(logits, LowerBoundOfBest(logits, count));
  const size_t kept = std::min(candidates_.size(), count);
  SelectBest(kept);
  candidates_.resize(kept);
  std::vector<float> best;
  best.reserve(kept);
  for (const Candidate& candidate : candidates_) best.push_back(candidate.logit);
  Weigh(best, max, scale);
  for (size_t i = 0; i < kept; ++i) candidates_[i].weight = weights_[i];
}

// The fewest best tokens whose weight reaches `wanted`. Most of a vocabulary is far below the best
// and never looked at twice; how far the look went does not show.
void TokenDraw::TakeTopP(std::span<const float> logits, double wanted, float max, float scale) {
  for (const float depth : {6.0F, 12.0F, kInfinity}) {
    Gather(logits, max - depth / scale);
    if (CutTopP(wanted)) return;
  }
}

void TokenDraw::SelectBest(size_t count) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != candidates_.end()) {
    std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  }
  std::sort(candidates_.begin(), end, better);
}

// Keeps the fewest best candidates whose weight reaches `wanted`; all, sorted, and false if none
// do. Sorts a growing front only. The order is total, so how far the front grew does not show.
bool TokenDraw::CutTopP(double wanted) {
  size_t front = std::min<size_t>(64, candidates_.size());
  while (true) {
    SelectBest(front);
    double cumulative = 0.0;
    for (size_t i = 0; i < front; ++i) {
      cumulative += candidates_[i].weight;
      if (cumulative >= wanted) {
        candidates_.resize(i + 1);
        return true;
      }
    }
    if (front == candidates_.size()) return false;
    front = std::min(front * 8, candidates_.size());
  }
}

// `target` is below the sum of all blocks, so one of them passes it.
int32_t TokenDraw::WalkBlocks(double target) const {
  double cumulative = 0.0;
  size_t block = 0;
  while (cumulative + block_sums_[block] <= target) cumulative += block_sums_[block++];
  const size_t begin = block * kWeightBlock;
  const size_t end = std::min(begin + kWeightBlock, weights_.size());
  int32_t token = -1;  // The last one with weight, should rounding pass the target by.
  for (size_t i = begin; i < end; ++i) {
    if (weights_[i] == 0.0F) continue;
    token = static_cast<int32_t>(i);
    cumulative += weights_[i];
    if (cumulative > target) break;
  }
  SL_CHECK(token >= 0);
  return token;
}

// The best candidate's weight is exactly 1, so min-p is a floor on the weight itself.
int32_t TokenDraw::WalkCandidates(double min_weight, float uniform) const {
  const auto counts = [&](const Candidate& candidate) {
    return candidate.weight > 0.0 && candidate.weight >= min_weight;
  };
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) sum += counts(candidate) ? candidate.weight : 0.0;
  const double target = static_cast<double>(uniform) * sum;
  double cumulative = 0.0;
  int32_t token = -1;  // The last one with weight, should rounding pass the target by.
  for (const Candidate& candidate : candidates_) {
    if (!counts(candidate)) continue;
    token = candidate.token;
    cumulative += candidate.weight;
    if (cumulative > target) break;
  }
  SL_CHECK(token >= 0);
  return token;
}

}  // namespace shardline
