#include "node/exec/shard_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::FreshDirectory;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::shardline::testing::TinyLlama;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool GoOn(uint64_t, uint64_t) { return true; }

struct Model {
  explicit Model(const std::string& encoded)
      : bytes(encoded),
        file(*GgufFile::View("m.gguf", std::as_bytes(std::span(bytes)))),
        hp(*HyperParameters::FromGguf(file)) {}

  std::string bytes;
  GgufFile file;
  HyperParameters hp;
};

TEST(ShardWeights, ATiedEmbeddingIsPackedOnceAndServesAsLmHead) {
  const Model model(TinyLlama({.layers = 2}).Encode());
  const auto weights = LoadShardWeights(model.file, model.hp, WholeModel(model.hp),
                                        WeightPolicy::kAsStored, {}, GoOn);
  ASSERT_THAT(weights, IsOk());
  EXPECT_EQ(&weights->lm_head(), &weights->embedding);
  EXPECT_EQ(weights->untied_lm_head.bytes(), 0);
  EXPECT_EQ(weights->layers.size(), 2u);
}

TEST(ShardWeights, AMiddleShardHoldsItsLayersOnly) {
  const Model model(TinyLlama({.layers = 4, .tied = false}).Encode());
  const auto weights =
      LoadShardWeights(model.file, model.hp, {.layers = {1, 3}}, WeightPolicy::kAsStored, {}, GoOn);
  ASSERT_THAT(weights, IsOk());
  EXPECT_EQ(weights->layers.size(), 2u);
  EXPECT_EQ(weights->embedding.bytes(), 0);
  EXPECT_EQ(weights->untied_lm_head.bytes(), 0);
  EXPECT_TRUE(weights->final_norm.empty());
}

TEST(ShardWeights, ProgressEndsAtTheShardsOwnBytes) {
  const Model model(TinyLlama({.layers = 4}).Encode());
  const ShardContents contents{.layers = {1, 3}};
  uint64_t bytes = 0;
  for (const TensorNeed& need : RequiredTensors(model.hp, contents)) {
    bytes += model.file.FindTensor(need.name)->data.size();
  }
  std::vector<uint64_t> seen;
  ASSERT_THAT(LoadShardWeights(model.file, model.hp, contents, WeightPolicy::kAsStored, {},
                               [&](uint64_t done, uint64_t total) {
                                 EXPECT_EQ(total, bytes);
                                 seen.push_back(done);
                                 return true;
                               }),
              IsOk());
  EXPECT_EQ(seen.front(), 0u);
  EXPECT_EQ(seen.back(), bytes);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(ShardWeights, LoadingStopsWhenAsked) {
  const Model model(TinyLlama({.layers = 4}).Encode());
  int calls = 0;
  EXPECT_THAT(LoadShardWeights(model.file, model.hp, WholeModel(model.hp), WeightPolicy::kAsStored,
                               {}, [&](uint64_t, uint64_t) { return ++calls < 5; }),
              FailsWith(FailureKind::kCancelled));
  EXPECT_EQ(calls, 5);
}

TEST(ShardWeights, AMissingTensorIsNamedWithItsLayers) {
  auto writer = TinyLlama({.layers = 4});
  writer.RemoveTensor("blk.2.ffn_up.weight");
  const Model model(writer.Encode());
  EXPECT_THAT(
      LoadShardWeights(model.file, model.hp, {.layers = {1, 3}}, WeightPolicy::kAsStored, {}, GoOn),
      AllOf(FailsWith(FailureKind::kInvalidRequest),
            StatusHas(absl::StatusCode::kInvalidArgument,
                      AllOf(HasSubstr("blk.2.ffn_up.weight"), HasSubstr("layers")))));
  EXPECT_THAT(
      LoadShardWeights(model.file, model.hp, {.layers = {0, 2}}, WeightPolicy::kAsStored, {}, GoOn),
      IsOk());
}

// The pages that lie wholly inside tensors of other shards cannot be read: a touch would crash.
TEST(ShardWeights, TouchesNoByteOfAnotherShard) {
  const std::string encoded = TinyLlama({.layers = 3, .hidden = 128, .ff = 256}).Encode();
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, encoded.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memcpy(memory, encoded.data(), encoded.size());
  const auto file =
      GgufFile::View("m.gguf", std::span(static_cast<const std::byte*>(memory), encoded.size()));
  ASSERT_THAT(file, IsOk());
  const auto hp = HyperParameters::FromGguf(*file);
  ASSERT_THAT(hp, IsOk());
  size_t locked = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name.starts_with("blk.1.")) continue;
    const uintptr_t data = reinterpret_cast<uintptr_t>(tensor.data.data());
    const uintptr_t begin = (data + page - 1) / page * page;
    const uintptr_t end = (data + tensor.data.size()) / page * page;
    if (begin >= end) continue;
    ASSERT_EQ(mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE), 0);
    locked += end - begin;
  }
  EXPECT_GT(locked, encoded.size() / 4);
  EXPECT_THAT(LoadShardWeights(*file, *hp, {.layers = {1, 2}}, WeightPolicy::kAsStored, {}, GoOn),
              IsOk());
  munmap(memory, encoded.size());
}

}  // namespace
}  // namespace shardline
