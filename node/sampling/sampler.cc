#include "node/sampling/sampler.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "node/sampling/philox.h"
#include "xxhash.h"

namespace shardline {
namespace {

bool NeedsHistory(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

// Without an index if any logit is NaN or +infinity, or none is finite.
Best FindBest(std::span<const float> logits) {
  Best best;
  const auto dim = static_cast<int64_t>(logits.size());
  cpu::Argmax({.x = logits.data(), .best = &best, .rows = 1, .dim = dim, .x_stride = dim}, {});
  return best;
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
                 std::span<const int32_t> generated, std::unique_ptr<RowPolicy> policy)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      has_penalties_(NeedsHistory(params_)),
      policy_(std::move(policy)) {
  SL_CHECK(vocab_size > 0);
  if (policy_ != nullptr) {
    for (const int32_t token : generated) policy_->Accept(token);
  }
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
  Best best = FindBest(logits);
  if (best.index < 0) return NonFinite(index, "as computed");

  const bool modifies = has_penalties_ || !params_.logit_bias.empty() || policy_ != nullptr;
  std::span<const float> raw = logits;
  if (params_.logprobs) {
    if (modifies) {
      raw_.assign(logits.begin(), logits.end());
      raw = raw_;
    }
    ReportLogprobs(raw, best.value, out);
  }
  if (modifies) {
    SL_ASSIGN_OR_RETURN(best, Modify(logits, index));
  }

  out.token = params_.temperature == 0.0F
                  ? static_cast<int32_t>(best.index)  // Ties go to the lowest id.
                  : draw_.Draw(params_, logits, best.value, UniformAt(params_.seed, index));
  if (params_.logprobs) out.logprob = raw[static_cast<size_t>(out.token)] - out.logprob;
  Count(out.token, false);
  if (policy_ != nullptr) policy_->Accept(out.token);
  return out;
}

DrawnTokens Sampler::SampleInTurn(std::span<float> logits, std::span<const int32_t> drafts,
                                  uint64_t index) {
  const auto vocab = static_cast<size_t>(vocab_size_);
  SL_CHECK(logits.size() == (1 + drafts.size()) * vocab);
  DrawnTokens out;
  for (size_t row = 0; row <= drafts.size(); ++row) {
    absl::StatusOr<SampledToken> drawn = Sample(logits.subspan(row * vocab, vocab), index + row);
    out.status = drawn.status();
    if (!drawn.ok()) break;
    out.tokens.push_back(*std::move(drawn));
    out.finished = finished();
    const bool goes_on = row < drafts.size() && (out.tokens.back().token == drafts[row] ||
                                                 Planted(PlantedBug::kDraftUnchecked));
    if (out.finished || !goes_on) break;
  }
  return out;
}

absl::StatusOr<Best> Sampler::Modify(std::span<float> logits, uint64_t index) {
  ApplyPenalties(logits);
  Best best = FindBest(logits);
  if (best.index < 0) return NonFinite(index, "after bias and penalties");
  if (policy_ == nullptr) return best;
  if (const absl::Status status = policy_->Apply(logits); !status.ok()) {
    if (FailureKindOf(status) != FailureKind::kNone) return status;
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("token ", index, ": ", status.message()));
  }
  best = FindBest(logits);
  if (best.index >= 0) return best;
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat("token ", index, ": the policy rules out every token"));
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
  const float log_sum = draw_.LogSum(raw, max);
  if (params_.top_logprobs > 0) {
    out.top_logprobs = draw_.Best(raw, static_cast<size_t>(params_.top_logprobs));
    for (auto& [token, logprob] : out.top_logprobs) logprob -= log_sum;
  }
  out.logprob = log_sum;
}

}  // namespace shardline
