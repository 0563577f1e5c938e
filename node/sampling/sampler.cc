#include "node/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "node/sampling/philox.h"
#include "xxhash.h"

namespace shardline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool NeedsHistory(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

// The largest logit; nullopt if any is NaN or +infinity, or none is finite. In lanes, so that it
// runs at the speed of memory: a maximum does not depend on the order.
std::optional<float> FiniteMax(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  std::array<uint32_t, kLanes> bad = {};
  lanes.fill(-kInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
      bad[lane] |= x < kInfinity ? 0U : 1U;
    }
  }
  for (; i < logits.size(); ++i) {
    const float x = logits[i];
    lanes[0] = x > lanes[0] ? x : lanes[0];
    bad[0] |= x < kInfinity ? 0U : 1U;
  }
  float max = -kInfinity;
  uint32_t any_bad = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    max = lanes[lane] > max ? lanes[lane] : max;
    any_bad |= bad[lane];
  }
  if (any_bad != 0 || max == -kInfinity) return std::nullopt;
  return max;
}

absl::Status NonFinite(uint64_t index, const char* when) {
  return MakeFailure(FailureKind::kNonFinite,
                     absl::StrCat("token ", index,
                                  ": logits are not finite, or every token is ruled out, ", when));
}

}  // namespace

float UniformAt(uint64_t seed, uint64_t index) {
  const std::array<uint32_t, 4> bits =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(bits[0] >> 8) * 0x1p-24F;
}

Sampler::Sampler(SamplingParams params, int32_t vocab_size, std::span<const int32_t> prompt,
                 std::span<const int32_t> generated)
    : params_(std::move(params)), vocab_size_(vocab_size), has_penalties_(NeedsHistory(params_)) {
  SL_CHECK(vocab_size > 0);
  if (!has_penalties_) return;
  for (const int32_t token : prompt) Count(token, true);
  for (const int32_t token : generated) Count(token, false);
}

void Sampler::Count(int32_t token, bool is_prompt) {
  if (!has_penalties_ || token < 0 || token >= vocab_size_) return;
  Counts& counts = counts_[token];
  ++(is_prompt ? counts.prompt : counts.generated);
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<float> logits, uint64_t index) {
  SL_CHECK(static_cast<int64_t>(logits.size()) == vocab_size_);
  SampledToken out;
  if (params_.logits_digest) out.logits_digest = XXH3_64bits(logits.data(), logits.size_bytes());
  std::optional<float> max = FiniteMax(logits);
  if (!max) return NonFinite(index, "as computed");

  const bool modifies = has_penalties_ || !params_.logit_bias.empty();
  std::span<const float> raw = logits;
  if (params_.logprobs) {
    if (modifies) {
      raw_.assign(logits.begin(), logits.end());
      raw = raw_;
    }
    ReportLogprobs(raw, *max, out);  // Leaves the log of the normaliser in out.logprob.
  }
  if (modifies) {
    ApplyPenalties(logits);
    max = FiniteMax(logits);
    if (!max) return NonFinite(index, "after bias and penalties");
  }

  if (params_.temperature == 0.0F) {
    // Ties go to the lowest id.
    out.token =
        static_cast<int32_t>(std::find(logits.begin(), logits.end(), *max) - logits.begin());
  } else {
    out.token = Draw(logits, *max, index);
  }
  if (params_.logprobs) out.logprob = raw[static_cast<size_t>(out.token)] - out.logprob;
  Count(out.token, false);
  return out;
}

void Sampler::ApplyPenalties(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[static_cast<size_t>(token)] += bias;
  for (const auto& [token, counts] : counts_) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0.0F ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit -= params_.frequency_penalty * static_cast<float>(counts.generated);
    if (counts.generated > 0) logit -= params_.presence_penalty;
  }
}

void Sampler::ReportLogprobs(std::span<const float> raw, float max, SampledToken& out) {
  double sum = 0.0;
  for (const float logit : raw) sum += std::exp(static_cast<double>(logit) - max);
  const auto log_sum = static_cast<float>(max + std::log(sum));
  const auto count = std::min<size_t>(static_cast<size_t>(params_.top_logprobs), raw.size());
  if (count > 0) {
    candidates_.clear();
    for (size_t i = 0; i < raw.size(); ++i) {
      candidates_.push_back({raw[i], static_cast<int32_t>(i), 0.0});
    }
    SelectBest(count);
    for (size_t i = 0; i < count; ++i) {
      out.top_logprobs.emplace_back(candidates_[i].token, candidates_[i].logit - log_sum);
    }
  }
  out.logprob = log_sum;
}

int32_t Sampler::Draw(std::span<const float> logits, float max, uint64_t index) {
  const double scale = 1.0 / static_cast<double>(params_.temperature);
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -kInfinity) continue;
    candidates_.push_back({logits[i], static_cast<int32_t>(i), 0.0});
  }
  const bool cuts_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < candidates_.size();
  if (cuts_k) {
    SelectBest(static_cast<size_t>(params_.top_k));
    candidates_.resize(static_cast<size_t>(params_.top_k));
  }
  double total = 0.0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((static_cast<double>(candidate.logit) - max) * scale);
    total += candidate.weight;
  }
  if (params_.top_p < 1.0F) CutTopP(total);
  // The best candidate's weight is exactly 1, so min_p is a floor on the weight itself.
  double sum = 0.0;
  for (Candidate& candidate : candidates_) {
    if (candidate.weight < static_cast<double>(params_.min_p)) candidate.weight = 0.0;
    sum += candidate.weight;
  }
  const double target = static_cast<double>(UniformAt(params_.seed, index)) * sum;
  double cumulative = 0.0;
  int32_t token = -1;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0.0) continue;
    token = candidate.token;  // The last one with weight, should rounding pass the target by.
    cumulative += candidate.weight;
    if (cumulative > target) break;
  }
  SL_CHECK(token >= 0);
  return token;
}

void Sampler::SelectBest(size_t count) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (end != candidates_.end()) {
    std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  }
  std::sort(candidates_.begin(), end, better);
}

// Keeps the fewest best candidates whose weight reaches top_p of `total`. Sorts a growing front
// only: most of a vocabulary is never looked at twice. The order is total, so how far the front
// grew does not show.
void Sampler::CutTopP(double total) {
  const double wanted = static_cast<double>(params_.top_p) * total;
  size_t front = std::min<size_t>(64, candidates_.size());
  while (true) {
    SelectBest(front);
    double cumulative = 0.0;
    for (size_t i = 0; i < front; ++i) {
      cumulative += candidates_[i].weight;
      if (cumulative >= wanted) {
        candidates_.resize(i + 1);
        return;
      }
    }
    if (front == candidates_.size()) return;  // Rounding: everything is kept.
    front = std::min(front * 8, candidates_.size());
  }
}

}  // namespace shardline
