#include "node/sampling/sampling_params.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

constexpr float kTemperatureMax = 100.0F;
constexpr float kPenaltyMax = 100.0F;
constexpr float kBiasMax = 1000.0F;

absl::Status Bad(const std::string& what) {
  return MakeFailure(FailureKind::kInvalidRequest, what);
}

// NaN fails every comparison and so is refused too.
absl::Status CheckRange(const char* field, float value, float min, float max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return Bad(absl::StrCat("sampling: ", field, " is ", value, ", not in [", min, ", ", max, "]"));
}

}  // namespace

absl::Status ValidateSampling(const SamplingParams& params, int32_t vocab_size) {
  for (const absl::Status& status :
       {CheckRange("temperature", params.temperature, 0.0F, kTemperatureMax),
        CheckRange("top_p", params.top_p, 0.0F, 1.0F),
        CheckRange("min_p", params.min_p, 0.0F, 1.0F),
        CheckRange("repetition_penalty", params.repetition_penalty, 0.01F, kPenaltyMax),
        CheckRange("frequency_penalty", params.frequency_penalty, -kPenaltyMax, kPenaltyMax),
        CheckRange("presence_penalty", params.presence_penalty, -kPenaltyMax, kPenaltyMax)}) {
    if (!status.ok()) return status;
  }
  if (params.top_k < 0) return Bad(absl::StrCat("sampling: top_k is ", params.top_k));
  if (params.top_logprobs < 0 || params.top_logprobs > kTopLogprobsMax) {
    return Bad(absl::StrCat("sampling: top_logprobs is ", params.top_logprobs, ", not in [0, ",
                            kTopLogprobsMax, "]"));
  }
  int32_t last = -1;
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return Bad(absl::StrCat("sampling: logit_bias names token ", token, " of a vocabulary of ",
                              vocab_size));
    }
    if (token <= last) return Bad("sampling: logit_bias is not sorted by distinct ids");
    last = token;
    // -infinity bans a token; +infinity would leave no distribution.
    const bool is_ban = std::isinf(bias) && bias < 0;
    if (!is_ban && !(bias >= -kBiasMax && bias <= kBiasMax)) {
      return Bad(absl::StrCat("sampling: logit_bias of token ", token, " is ", bias));
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
