// A run that is begun anew with any prefix of what it had delivered goes on as if nothing had
// happened: tokens, log-probabilities and digests, on a hash for a model and on a real one.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/kernel_table.h"
#include "node/exec/cpu_executor.h"
#include "node/exec/kv_store.h"
#include "node/exec/llama_forward.h"
#include "node/exec/shard_weights.h"
#include "tests/node/exec/pipeline.h"
#include "tests/node/rounds/fake_device.h"
#include "tests/node/rounds/local_shard.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::FakeDevice;
using ::shardline::testing::FreshDirectory;
using ::shardline::testing::IsOk;
using ::shardline::testing::kFakeHiddenDim;
using ::shardline::testing::kFakeVocabSize;
using ::shardline::testing::LoadShards;
using ::shardline::testing::LocalShard;
using ::shardline::testing::MakeTinyLlama;
using ::shardline::testing::Shards;
using ::shardline::testing::TinyVocabSize;

constexpr int32_t kPages = 16;
constexpr int32_t kNewTokens = 20;
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

LocalShard MakeShard(LayerRange layers, int32_t hidden_dim, int32_t vocab_size,
                     LocalShard::Device device) {
  return LocalShard({.layers = layers, .vocab_size = vocab_size, .hidden_dim = hidden_dim}, kPages,
                    std::move(device));
}

LocalShard::Outcome Run(LocalShard& shard, const SamplingParams& sampling,
                        std::vector<int32_t> delivered, std::vector<int32_t> stop_tokens = {}) {
  LocalShard::Outcome outcome = shard.Run({.prompt = kPrompt,
                                           .delivered = std::move(delivered),
                                           .new_tokens_max = kNewTokens,
                                           .sampling = sampling,
                                           .stop_tokens = std::move(stop_tokens)});
  EXPECT_THAT(outcome.end.status, IsOk());
  return outcome;
}

std::map<std::string, SamplingParams> Ways() {
  SamplingParams greedy{.logprobs = true, .top_logprobs = 3, .logits_digest = true};
  SamplingParams seeded = greedy;
  seeded.temperature = 0.9F;
  seeded.top_k = 20;
  seeded.seed = 4711;
  SamplingParams penalised = seeded;
  penalised.repetition_penalty = 1.4F;
  penalised.frequency_penalty = 0.7F;
  penalised.presence_penalty = 0.9F;
  return {{"greedy", greedy}, {"seeded", seeded}, {"penalised", penalised}};
}

void ExpectSame(const SampledToken& a, const SampledToken& b) {
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(a.logprob, b.logprob);
  EXPECT_EQ(a.top_logprobs, b.top_logprobs);
  EXPECT_EQ(a.logits_digest, b.logits_digest);
}

void ExpectPrefixesGoOn(LocalShard& shard) {
  for (const auto& [name, sampling] : Ways()) {
    const LocalShard::Outcome whole = Run(shard, sampling, {});
    ASSERT_EQ(whole.tokens.size(), static_cast<size_t>(kNewTokens));
    std::vector<int32_t> delivered;
    for (size_t cut = 1; cut <= whole.tokens.size(); ++cut) {
      SCOPED_TRACE(name + " cut at " + std::to_string(cut));
      delivered.push_back(whole.tokens[cut - 1].token);
      const LocalShard::Outcome rest = Run(shard, sampling, delivered);
      ASSERT_EQ(rest.tokens.size(), whole.tokens.size() - cut);
      for (size_t i = 0; i < rest.tokens.size(); ++i) {
        ExpectSame(rest.tokens[i], whole.tokens[cut + i]);
      }
      EXPECT_EQ(rest.end.reason, whole.end.reason);
      EXPECT_EQ(rest.end.tokens, whole.end.tokens);
    }
    // A stop token further on stops the rest where it stopped the whole.
    const int32_t stop = whole.tokens.back().token;
    const LocalShard::Outcome stopped = Run(shard, sampling, {}, {stop});
    const size_t kept = stopped.tokens.size() / 2;
    const LocalShard::Outcome rest = Run(
        shard, sampling, {delivered.begin(), delivered.begin() + static_cast<int>(kept)}, {stop});
    EXPECT_EQ(stopped.end.reason, FinishReason::kStop) << name;
    EXPECT_EQ(rest.end.reason, FinishReason::kStop) << name;
    EXPECT_EQ(rest.end.stop_token, stopped.end.stop_token) << name;
    EXPECT_EQ(rest.tokens.size() + kept, stopped.tokens.size()) << name;
  }
}

TEST(ForcedPrefix, GoesOnUnchangedOnAHash) {
  FakeDevice device({0, 6}, kPages);
  LocalShard shard = MakeShard({0, 6}, kFakeHiddenDim, kFakeVocabSize,
                               [&](const ComputeJob& job) { return device.Run(job); });
  ExpectPrefixesGoOn(shard);
}

TEST(ForcedPrefix, GoesOnUnchangedOnARealModel) {
  const Shards shards = LoadShards(MakeTinyLlama(FreshDirectory(), {.layers = 3}), {});
  const std::unique_ptr<KvStore> kv = *KvStore::Create(shards[0].hp, 3, kPages);
  CpuExecutor executor(*LlamaForward::Create(shards.data(), kv.get(), *CpuKernels(), {}, {}),
                       SystemClock(), {});
  LocalShard shard =
      MakeShard({0, 3}, shards[0].hp.hidden_dim, TinyVocabSize(), [&](const ComputeJob& job) {
        ComputeDone result;
        absl::Notification finished;
        EXPECT_THAT(executor.Submit(job,
                                    [&](ComputeDone done) {
                                      result = std::move(done);
                                      finished.Notify();
                                    }),
                    IsOk());
        finished.WaitForNotification();
        return result;
      });
  ExpectPrefixesGoOn(shard);
}

}  // namespace
}  // namespace shardline
