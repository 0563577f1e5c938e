#include "node/sampling/sampling_params.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ValidateSampling, TakesTheDefaults) { EXPECT_THAT(ValidateSampling({}, 10), IsOk()); }

TEST(ValidateSampling, TakesABanAsBias) {
  SamplingParams params;
  params.logit_bias = {{0, -kInf}, {9, 100.0F}};
  EXPECT_THAT(ValidateSampling(params, 10), IsOk());
}

TEST(ValidateSampling, NamesTheBadField) {
  const std::vector<std::pair<std::string, std::function<void(SamplingParams&)>>> cases = {
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1F; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kNan; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kInf; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.5F; }},
      {"top_p", [](SamplingParams& p) { p.top_p = kNan; }},
      {"min_p", [](SamplingParams& p) { p.min_p = -0.5F; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0.0F; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = kInf; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = kNan; }},
      {"top_logprobs", [](SamplingParams& p) { p.top_logprobs = kTopLogprobsMax + 1; }},
      {"top_logprobs", [](SamplingParams& p) { p.top_logprobs = -1; }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{10, 1.0F}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{-1, 1.0F}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, kNan}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, kInf}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{2, 1.0F}, {1, 1.0F}};
       }},
  };
  for (const auto& [field, spoil] : cases) {
    SamplingParams params;
    spoil(params);
    EXPECT_THAT(ValidateSampling(params, 10),
                StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  }
}

}  // namespace
}  // namespace shardline
