#include "model/model_layout.h"

#include <memory>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::testing::AllOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusHas;
using testing::TinyLlama;
using testing::TinyLlamaOptions;

// A model in memory. The bytes stand still, as the file views them.
struct Model {
  explicit Model(const GgufWriter& writer) : bytes(writer.Encode()) {
    auto opened = GgufFile::View("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
    EXPECT_THAT(opened, IsOk());
    file = std::make_unique<GgufFile>(*std::move(opened));
    const auto read = HyperParameters::FromGguf(*file);
    EXPECT_THAT(read, IsOk());
    hp = *read;
  }
  Model(const Model&) = delete;

  std::string bytes;
  std::unique_ptr<GgufFile> file;
  HyperParameters hp;
};

std::set<std::string> Names(const HyperParameters& hp, const ShardContents& contents) {
  std::set<std::string> names;
  for (const TensorNeed& need : RequiredTensors(hp, contents)) {
    EXPECT_TRUE(names.insert(need.name).second) << need.name << " is needed twice";
  }
  return names;
}

const TinyLlamaOptions kFamily[] = {
    {},
    {.tied = false},
    {.attention_bias = true},
    {.rope_factors = true},
    {.architecture = "qwen2"},
    {.architecture = "qwen3", .head_dim = 32, .tied = false},
};

TEST(ModelLayout, TheWholeModelNeedsExactlyTheFilesTensors) {
  for (const TinyLlamaOptions& options : kFamily) {
    const Model model(TinyLlama(options));
    EXPECT_THAT(CheckTensors(*model.file, model.hp), IsOk());
    std::set<std::string> in_file;
    for (const GgufTensor& tensor : model.file->tensors()) in_file.emplace(tensor.name);
    EXPECT_EQ(Names(model.hp, WholeModel(model.hp)), in_file);
  }
}

TEST(ModelLayout, F13ATiedHeadStageNeedsTheEmbeddingOnce) {
  const Model tied(TinyLlama());
  const auto head = Names(tied.hp, {.layers = {0, 2}, .embedding = true, .head = true});
  EXPECT_TRUE(head.contains("token_embd.weight"));
  EXPECT_FALSE(head.contains("output.weight"));
  // A head apart from the embedding still multiplies by it.
  EXPECT_TRUE(Names(tied.hp, {.layers = {2, 4}, .head = true}).contains("token_embd.weight"));
  EXPECT_FALSE(Names(tied.hp, {.layers = {2, 4}}).contains("token_embd.weight"));

  const Model untied(TinyLlama({.tied = false}));
  const auto apart = Names(untied.hp, {.layers = {2, 4}, .head = true});
  EXPECT_FALSE(apart.contains("token_embd.weight"));
  EXPECT_TRUE(apart.contains("output.weight"));
}

TEST(ModelLayout, EveryTensorIsMissedByNameAndByWhoNeedsIt) {
  const GgufWriter whole = TinyLlama({.attention_bias = true, .rope_factors = true});
  const Model model(whole);
  for (const GgufTensor& tensor : model.file->tensors()) {
    const std::string name(tensor.name);
    GgufWriter writer = whole;
    writer.RemoveTensor(name);
    const std::string bytes = writer.Encode();
    const auto file =
        GgufFile::View("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
    ASSERT_THAT(file, IsOk());
    const bool of_layers = name.starts_with("blk.") || name == "rope_freqs.weight";
    EXPECT_THAT(CheckTensors(*file, model.hp),
                StatusHas(absl::StatusCode::kInvalidArgument,
                          HasSubstr("m.gguf: missing tensor " + name + ", needed by " +
                                    (of_layers ? "layers 0-3" : "the head stage"))));
  }
}

TEST(ModelLayout, F14AMissingTensorIsTheWorryOfItsShardAlone) {
  GgufWriter writer = TinyLlama();
  const HyperParameters hp = Model(writer).hp;
  const Model model(writer.RemoveTensor("blk.0.attn_q.weight"));
  const absl::Status status = CheckTensors(*model.file, hp, {.layers = {0, 2}, .embedding = true});
  EXPECT_THAT(status, StatusHas(absl::StatusCode::kInvalidArgument,
                                HasSubstr("missing tensor blk.0.attn_q.weight, needed by "
                                          "layers 0-1")));
  EXPECT_EQ(FailureDetailOf(status).layers, (LayerRange{0, 2}));
  EXPECT_THAT(CheckTensors(*model.file, hp, {.layers = {2, 4}, .head = true}), IsOk());
}

TEST(ModelLayout, AnotherShapeOrTypeIsRefused) {
  GgufWriter transposed = TinyLlama();
  transposed.tensor("blk.1.ffn_down.weight").shape = {64, 128};
  const Model model(transposed);
  EXPECT_THAT(CheckTensors(*model.file, model.hp),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("blk.1.ffn_down.weight has shape 64x128, but layers 0-3 needs "
                                  "128x64")));
  // F3 where nothing overflows: a vocabulary that the tokenizer does not have.
  GgufWriter larger = TinyLlama();
  larger.tensor("token_embd.weight").shape[1] -= 1;
  const Model short_vocab(larger);
  EXPECT_THAT(CheckTensors(*short_vocab.file, short_vocab.hp),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("token_embd.weight")));

  GgufWriter half_norm = TinyLlama();
  half_norm.tensor("output_norm.weight").type_id = static_cast<uint32_t>(GgufTensorType::kF16);
  const Model half(half_norm);
  EXPECT_THAT(
      CheckTensors(*half.file, half.hp),
      StatusHas(absl::StatusCode::kInvalidArgument,
                HasSubstr("output_norm.weight is stored as f16, but this build needs f32")));
}

TEST(ModelLayout, ATensorThatWouldBeLeftOutOfTheSumsIsRefused) {
  for (const char* name : {"blk.0.attn_output.bias", "blk.4.attn_q.weight", "cls.weight"}) {
    GgufWriter writer = TinyLlama();
    writer.AddTensor(name, GgufTensorType::kF32, {1}, "abcd");
    const Model model(writer);
    EXPECT_THAT(CheckTensors(*model.file, model.hp),
                StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  }
}

TEST(ModelLayout, ShardsOfAnyCutAddUpToTheFile) {
  for (const TinyLlamaOptions& options : kFamily) {
    const Model model(TinyLlama(options));
    const auto costs = CostsOf(*model.file, model.hp);
    ASSERT_THAT(costs, IsOk());
    uint64_t in_file = 0;
    for (const GgufTensor& tensor : model.file->tensors()) in_file += tensor.data.size();
    EXPECT_EQ(ShardBytes(*costs, WholeModel(model.hp)), in_file);
    for (int32_t cut = 1; cut < model.hp.layer_count; ++cut) {
      const ShardContents head = {.layers = {0, cut}, .embedding = true, .head = true};
      const ShardContents rest = {.layers = {cut, model.hp.layer_count}};
      EXPECT_EQ(ShardBytes(*costs, head) + ShardBytes(*costs, rest),
                in_file + costs->shared_bytes);  // The rope factors are on both.
      for (const ShardContents& contents : {head, rest}) {
        uint64_t needed = 0;
        for (const std::string& name : Names(model.hp, contents)) {
          needed += model.file->FindTensor(name)->data.size();
        }
        EXPECT_EQ(ShardBytes(*costs, contents), needed);
      }
    }
  }
}

TEST(ModelLayout, KvCostsTwoHalvesAnElement) {
  const Model model(TinyLlama());
  const auto costs = CostsOf(*model.file, model.hp);
  ASSERT_THAT(costs, IsOk());
  EXPECT_EQ(costs->kv_bytes_per_token_layer, 2u * 2u * 2u * 16u);  // K and V, f16, 2 heads of 16.
  EXPECT_EQ(ShardKvBytesPerToken(*costs, {.layers = {1, 4}}), 3u * 128u);
  EXPECT_EQ(ShardKvBytesPerToken(*costs, {.head = true}), 0u);
}

}  // namespace
}  // namespace shardline
