#include "node/exec/llama_forward.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/targets.h"
#include "kernels/thread_pool.h"
#include "tests/kernels/ops_fixture.h"
#include "tests/node/exec/pipeline.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::CutAt;
using ::shardline::testing::FreshDirectory;
using ::shardline::testing::LoadShards;
using ::shardline::testing::MakeTinyLlama;
using ::shardline::testing::Piece;
using ::shardline::testing::Pipeline;
using ::shardline::testing::RandomTokens;
using ::shardline::testing::Shards;
using ::shardline::testing::TinyLlamaOptions;

const KernelTable* Cpu() { return *CpuKernels(); }

class LlamaForwardTest : public ::testing::Test {
 protected:
  void Make(const TinyLlamaOptions& options) {
    path_ = MakeTinyLlama(FreshDirectory(), options);
    whole_ = LoadShards(path_, {});
    tokens_ = RandomTokens(150, whole_[0].hp.vocab_size, 3);
  }

  std::string path_;
  Shards whole_;
  std::vector<int32_t> tokens_;
};

TEST_F(LlamaForwardTest, EveryKernelTableGivesTheSameLogits) {
  const TinyLlamaOptions kinds[] = {
      {},
      {.tied = false, .weights = GgufTensorType::kQ4_0, .embedding = GgufTensorType::kQ8_0},
      {.architecture = "qwen2", .weights = GgufTensorType::kQ4_1},
      {.architecture = "qwen3", .weights = GgufTensorType::kBF16},
      {.q_heads = 6, .kv_heads = 1, .head_dim = 32, .rope_factors = true},
      {.layers = 2,
       .hidden = 256,
       .ff = 512,
       .weights = GgufTensorType::kQ4_K,
       .embedding = GgufTensorType::kQ6_K},
  };
  for (const TinyLlamaOptions& kind : kinds) {
    Make(kind);
    Pipeline cpu(whole_, {.kernels = Cpu()});
    Pipeline ref(whole_, {.kernels = &RefKernels()});
    EXPECT_TRUE(SameBits(cpu.RunChunked(0, tokens_, 70), ref.RunChunked(0, tokens_, 150)))
        << kind.architecture;
  }
}

TEST_F(LlamaForwardTest, AnyCutIntoShardsGivesTheSameLogits) {
  Make({.layers = 6, .weights = GgufTensorType::kQ4_0});
  const std::vector<float> want = Pipeline(whole_, {.kernels = Cpu()}).RunChunked(0, tokens_, 64);
  for (const std::vector<int32_t>& cuts :
       std::vector<std::vector<int32_t>>{{3}, {2, 4}, {1, 2, 3, 4}, {1}, {5}, {1, 5}, {0}, {6}}) {
    const Shards shards = LoadShards(path_, CutAt(cuts, 6));
    Pipeline pipeline(shards, {.kernels = Cpu()});
    EXPECT_TRUE(SameBits(pipeline.RunChunked(0, tokens_, 64), want)) << cuts.size();
  }
}

TEST_F(LlamaForwardTest, APromptInPiecesGivesTheLogitsOfTheWholePrompt) {
  Make({.weights = GgufTensorType::kQ8_0});
  const std::vector<float> want = Pipeline(whole_, {.kernels = Cpu()}).RunChunked(0, tokens_, 150);
  std::vector<size_t> chunks = {64, 149};
  for (size_t chunk = 1; chunk <= 17; ++chunk) chunks.push_back(chunk);
  for (const size_t chunk : chunks) {
    Pipeline pipeline(whole_, {.kernels = Cpu()});
    EXPECT_TRUE(SameBits(pipeline.RunChunked(0, tokens_, chunk), want)) << chunk;
  }
}

TEST_F(LlamaForwardTest, ALongCallIsCutWithoutATrace) {
  Make({.weights = GgufTensorType::kQ8_0});
  const std::vector<float> want = Pipeline(whole_, {.kernels = Cpu()}).RunChunked(0, tokens_, 150);
  for (const int32_t rows_max : {1, 7, 64, 149}) {
    Pipeline pipeline(whole_, {.kernels = Cpu(), .rows_max = rows_max});
    EXPECT_TRUE(SameBits(pipeline.RunChunked(0, tokens_, 150), want)) << rows_max;
  }
}

TEST_F(LlamaForwardTest, EveryTargetAndThreadCountGivesTheSameLogits) {
  for (const GgufTensorType type :
       {GgufTensorType::kQ4_1, GgufTensorType::kBF16, GgufTensorType::kF32}) {
    Make({.weights = type, .embedding = type});
    const std::vector<float> want = Pipeline(whole_, {.kernels = Cpu()}).RunChunked(0, tokens_, 40);
    OnEveryTarget([&](DeviceStream stream) {
      Pipeline pipeline(whole_, {.kernels = Cpu(), .stream = stream});
      EXPECT_TRUE(SameBits(pipeline.RunChunked(0, tokens_, 40), want));
    });
  }
}

TEST_F(LlamaForwardTest, NeighboursInABatchChangeNothing) {
  Make({.weights = GgufTensorType::kQ4_0});
  const int32_t vocab = whole_[0].hp.vocab_size;
  constexpr int32_t kSessions = 64;
  ThreadPool pool(ThreadPoolOptions{.threads = 2});
  // Session s has a prompt of s + 1 tokens, then three decode rows.
  std::vector<std::vector<float>> solo;
  for (int32_t s = 0; s < kSessions; ++s) {
    Pipeline alone(whole_, {.kernels = Cpu(), .context_tokens = 80, .sessions_max = 1});
    alone.Run({{0, RandomTokens(static_cast<size_t>(s + 1), vocab, static_cast<uint32_t>(s))}});
    solo.push_back(alone.RunChunked(0, RandomTokens(3, vocab, static_cast<uint32_t>(s) + 99), 1));
  }
  for (const int32_t count : {1, 2, 3, 5, 16, 33, 64}) {
    Pipeline shared(whole_, {.kernels = Cpu(),
                             .stream = {.pool = &pool},
                             .context_tokens = 80,
                             .sessions_max = kSessions});
    std::vector<Piece> prompts;
    for (int32_t s = 0; s < count; ++s) {
      prompts.push_back(
          {s, RandomTokens(static_cast<size_t>(s + 1), vocab, static_cast<uint32_t>(s))});
    }
    shared.Run(prompts);
    for (size_t step = 0; step < 3; ++step) {
      std::vector<Piece> pieces;
      for (int32_t s = 0; s < count; ++s) {
        pieces.push_back({s, {RandomTokens(3, vocab, static_cast<uint32_t>(s) + 99)[step]}});
      }
      const std::vector<float> logits = shared.Run(pieces);
      for (int32_t s = 0; s < count; ++s) {
        const auto row = [vocab](const std::vector<float>& all, size_t i) {
          return std::vector<float>(all.begin() + i * vocab, all.begin() + (i + 1) * vocab);
        };
        ASSERT_TRUE(SameBits(row(logits, static_cast<size_t>(s)), row(solo[s], step)))
            << "session " << s << " of " << count;
      }
    }
  }
}

TEST_F(LlamaForwardTest, RefusesPositionsBeyondTheContextBeforeItWrites) {
  Make({});
  Pipeline pipeline(whole_, {.kernels = Cpu(), .context_tokens = 32});
  auto kv = KvStore::Create(whole_[0].hp, 4, 3);
  ASSERT_THAT(kv, ::shardline::testing::IsOk());
  auto forward = LlamaForward::Create(&whole_[0], kv->get(), Cpu(), {}, {.context_tokens_max = 32});
  ASSERT_THAT(forward, ::shardline::testing::IsOk());
  std::vector<float> hidden(33 * 64, 1.0f);
  const int32_t pages[] = {0, 1, 2};
  const SequenceSlice slice{.row_count = 33, .pages = pages};
  EXPECT_EQ((*forward)->RunLayers({&slice, 1}, hidden.data()).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(hidden, std::vector<float>(33 * 64, 1.0f));
}

TEST_F(LlamaForwardTest, RefusesHeadsItsKernelsCannotCompute) {
  Make({.q_heads = 4, .kv_heads = 2, .head_dim = 24});
  auto kv = KvStore::Create(whole_[0].hp, 4, 3);
  ASSERT_THAT(kv, ::shardline::testing::IsOk());
  EXPECT_THAT(LlamaForward::Create(&whole_[0], kv->get(), Cpu(), {}, {}),
              ::shardline::testing::FailsWith(FailureKind::kIncompatibleRecipe));
}

}  // namespace
}  // namespace shardline
