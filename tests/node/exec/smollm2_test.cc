// The real model against what two other implementations recorded (tests/golden/README.md), and
// against itself however it is cut.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/thread_pool.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/ops_fixture.h"
#include "tests/node/exec/pipeline.h"
#include "tests/support/test_model.h"

namespace shardline {
namespace {

using ::shardline::testing::CutAt;
using ::shardline::testing::LoadShards;
using ::shardline::testing::Pipeline;
using ::shardline::testing::PipelineOptions;
using ::shardline::testing::Shards;
using ::shardline::testing::TestModelPath;

// How far a logit may be from the reference, which keeps keys and values in f32 and does not round
// activations, and the lead above which the choice must be the reference's. Exact weights differ by
// f16 keys and values and the order of sums: measured 0.012. As stored, 8-bit activations come in:
// measured 1.3, where the recorded 8-bit implementation is off by 1.5.
struct Tolerance {
  float logit;
  float lead;
};
constexpr Tolerance kExact = {.logit = 0.02f, .lead = 0.04f};
constexpr Tolerance kAsStored = {.logit = 1.6f, .lead = 1.0f};

struct GoldenRun {
  std::vector<int32_t> continuation;
  std::vector<float> gaps;
  std::vector<int32_t> ids;  // Of `values`: logits at the last prompt position.
  std::vector<float> values;
};

struct GoldenCase {
  std::string name;
  std::vector<int32_t> prompt;
  GoldenRun exact;
};

std::vector<GoldenCase> ReadGolden() {
  std::ifstream in("tests/golden/smollm2_135m_q4_1.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& from : json["cases"]) {
    GoldenCase golden{.name = from["name"], .prompt = from["prompt_ids"]};
    const nlohmann::json& exact = from["exact"];
    golden.exact.continuation = exact["continuation_ids"].get<std::vector<int32_t>>();
    golden.exact.gaps = exact["gaps"].get<std::vector<float>>();
    for (const char* kind : {"top", "spaced"}) {
      const nlohmann::json& logits = exact["prompt_logits"];
      for (int32_t id : logits[std::string(kind) + "_ids"]) golden.exact.ids.push_back(id);
      for (float v : logits[std::string(kind) + "_values"]) golden.exact.values.push_back(v);
    }
    cases.push_back(std::move(golden));
  }
  return cases;
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = TestModelPath();
    if (path_.empty()) FAIL();
    cases_ = ReadGolden();
    ASSERT_FALSE(cases_.empty());
  }

  PipelineOptions Options(std::vector<LayerRange> ranges = {}) {
    return {.ranges = std::move(ranges),
            .kernels = *CpuKernels(),
            .stream = {.pool = &pool_},
            .context_tokens = 1024,
            .sessions_max = 1};
  }

  // Feeds the recorded tokens, so that one difference does not lead to others.
  void FollowGolden(const Shards& shards, const Tolerance& tolerance) {
    for (const GoldenCase& golden : cases_) {
      SCOPED_TRACE(golden.name);
      Pipeline pipeline(shards, Options());
      const int64_t vocab = pipeline.hp().vocab_size;
      std::vector<int32_t> tokens = golden.prompt;
      tokens.insert(tokens.end(), golden.exact.continuation.begin(),
                    golden.exact.continuation.end() - 1);
      const std::vector<float> all = pipeline.Run({{0, tokens}});
      const auto first = all.begin() + (static_cast<int64_t>(golden.prompt.size()) - 1) * vocab;
      float worst = 0;
      for (size_t i = 0; i < golden.exact.ids.size(); ++i) {
        worst = std::max(worst, std::abs(first[golden.exact.ids[i]] - golden.exact.values[i]));
      }
      EXPECT_LE(worst, tolerance.logit);
      RecordProperty("logit_error_" + golden.name, std::to_string(worst));
      size_t compared = 0;
      for (size_t step = 0; step < golden.exact.continuation.size(); ++step) {
        if (golden.exact.gaps[step] <= tolerance.lead) continue;
        const auto logits = first + static_cast<int64_t>(step) * vocab;
        EXPECT_EQ(std::max_element(logits, logits + vocab) - logits,
                  golden.exact.continuation[step])
            << "step " << step << ", lead " << golden.exact.gaps[step];
        ++compared;
      }
      EXPECT_GE(compared, 10u);
    }
  }

  std::string path_;
  std::vector<GoldenCase> cases_;
  ThreadPool pool_{ThreadPoolOptions{.threads = 2}};
};

TEST_F(SmolLm2Test, WithExactWeightsFollowsTheFloatReference) {
  const Shards shards = LoadShards(path_, {}, WeightPolicy::kDequantizeToF32, {.pool = &pool_});
  FollowGolden(shards, kExact);
}

TEST_F(SmolLm2Test, AsStoredStaysWithinTheErrorOfEightBitActivations) {
  FollowGolden(LoadShards(path_, {}, WeightPolicy::kAsStored, {.pool = &pool_}), kAsStored);
}

TEST_F(SmolLm2Test, HoweverItIsCutTheLogitsAreTheSame) {
  const Shards whole = LoadShards(path_, {});
  std::vector<int32_t> tokens;
  for (const GoldenCase& golden : cases_) {
    tokens.insert(tokens.end(), golden.prompt.begin(), golden.prompt.end());
    tokens.insert(tokens.end(), golden.exact.continuation.begin(),
                  golden.exact.continuation.begin() + 8);
  }
  tokens.resize(std::min<size_t>(tokens.size(), 96));
  const std::vector<float> want = Pipeline(whole, Options()).RunChunked(0, tokens, tokens.size());
  for (const size_t chunk : {1, 7, 17, 64}) {
    EXPECT_TRUE(SameBits(Pipeline(whole, Options()).RunChunked(0, tokens, chunk), want)) << chunk;
  }
  for (const std::vector<int32_t>& cuts :
       std::vector<std::vector<int32_t>>{{15}, {7, 20}, {1, 2, 13, 29}}) {
    const Shards shards = LoadShards(path_, CutAt(cuts, 30));
    EXPECT_TRUE(SameBits(Pipeline(shards, Options()).RunChunked(0, tokens, 33), want));
  }
  for (const std::string& target : cpu::SupportedTargetNames()) {
    cpu::ForceTargetForTest(target);
    PipelineOptions one_thread = Options();
    one_thread.stream = {};
    EXPECT_TRUE(SameBits(Pipeline(whole, one_thread).RunChunked(0, tokens, 48), want)) << target;
  }
  cpu::ResetTargetForTest();
}

}  // namespace
}  // namespace shardline
