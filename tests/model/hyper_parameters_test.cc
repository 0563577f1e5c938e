#include "model/hyper_parameters.h"

#include <cmath>
#include <functional>
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

absl::StatusOr<HyperParameters> Read(const GgufWriter& writer) {
  const std::string bytes = writer.Encode();
  const auto file = GgufFile::View("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (!file.ok()) return file.status();
  return HyperParameters::FromGguf(*file);
}

void ExpectRefused(const GgufWriter& writer, const std::string& why) {
  EXPECT_THAT(Read(writer), StatusHas(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("m.gguf: "), HasSubstr(why))));
}

TEST(HyperParameters, ALlamaFileIsRead) {
  const auto hp = Read(TinyLlama({.layers = 3, .rope_base = 50'000.0f}));
  ASSERT_THAT(hp, IsOk());
  EXPECT_EQ(hp->architecture, Architecture::kLlama);
  EXPECT_EQ(hp->layer_count, 3);
  EXPECT_EQ(hp->hidden_dim, 64);
  EXPECT_EQ(hp->ff_dim, 128);
  EXPECT_EQ(hp->q_heads, 4);
  EXPECT_EQ(hp->kv_heads, 2);
  EXPECT_EQ(hp->head_dim, 16);
  EXPECT_EQ(hp->vocab_size, testing::TinyVocabSize());
  EXPECT_EQ(hp->context_length, 512);
  EXPECT_FLOAT_EQ(hp->rms_epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(hp->rope.base, 50'000.0f);
  EXPECT_EQ(hp->rope.dimension_count, 16);
  EXPECT_EQ(hp->rope.pairing, RopePairing::kInterleaved);
  EXPECT_EQ(hp->rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(hp->tied_head);
  EXPECT_FALSE(hp->attention_bias);
  EXPECT_FALSE(hp->qk_norm);
}

TEST(HyperParameters, TheFamilysMembersDifferWhereTheyShould) {
  const auto qwen2 = Read(TinyLlama({.architecture = "qwen2", .tied = false}));
  ASSERT_THAT(qwen2, IsOk());
  EXPECT_TRUE(qwen2->attention_bias);
  EXPECT_FALSE(qwen2->qk_norm);
  EXPECT_FALSE(qwen2->tied_head);
  EXPECT_EQ(qwen2->rope.pairing, RopePairing::kHalfSplit);

  const auto qwen3 = Read(TinyLlama({.architecture = "qwen3", .head_dim = 32}));
  ASSERT_THAT(qwen3, IsOk());
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_FALSE(qwen3->attention_bias);
  EXPECT_EQ(qwen3->head_dim, 32);
  EXPECT_EQ(qwen3->q_dim(), 128);  // Not the hidden dimension.

  const auto biased = Read(TinyLlama({.attention_bias = true}));
  ASSERT_THAT(biased, IsOk());
  EXPECT_TRUE(biased->attention_bias);
}

TEST(HyperParameters, AnotherArchitectureIsRefusedNamingTheSupported) {
  ExpectRefused(TinyLlama({.architecture = "mamba"}),
                "architecture 'mamba' not supported by this build, which has llama, qwen2, qwen3");
  ExpectRefused(TinyLlama().RemoveKey("general.architecture"), "general.architecture");
}

TEST(HyperParameters, EveryNeededKeyIsMissedByName) {
  for (const char* key : {"llama.block_count", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.context_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    ExpectRefused(TinyLlama().RemoveKey(key), key);
  }
}

TEST(HyperParameters, HeadsThatDoNotDivideAreRefused) {
  ExpectRefused(TinyLlama().SetUint32("llama.attention.head_count_kv", 3),
                "head_count_kv 3 does not divide");
  ExpectRefused(TinyLlama().SetUint32("llama.attention.head_count_kv", 8),
                "head_count_kv 8 does not divide");
  ExpectRefused(TinyLlama()
                    .SetUint32("llama.attention.head_count", 5)
                    .SetUint32("llama.attention.head_count_kv", 5),
                "does not divide embedding_length 64");
  ExpectRefused(TinyLlama().SetUint32("llama.attention.key_length", 15),
                "head dimension 15 is odd");
  ExpectRefused(TinyLlama().SetUint32("llama.attention.value_length", 8),
                "value_length 8 is not attention.key_length 16");
}

TEST(HyperParameters, SizesOutOfBoundsAreRefused) {
  const std::pair<const char*, uint32_t> rows[] = {{"llama.block_count", 0},
                                                   {"llama.block_count", 1025},
                                                   {"llama.embedding_length", 0},
                                                   {"llama.embedding_length", 1u << 31},
                                                   {"llama.feed_forward_length", 0},
                                                   {"llama.feed_forward_length", UINT32_MAX},
                                                   {"llama.attention.head_count", 0},
                                                   {"llama.attention.head_count_kv", 0},
                                                   {"llama.context_length", 0},
                                                   {"llama.context_length", UINT32_MAX},
                                                   {"llama.vocab_size", 0},
                                                   {"llama.vocab_size", UINT32_MAX},
                                                   {"llama.rope.dimension_count", 0},
                                                   {"llama.rope.dimension_count", 15},
                                                   {"llama.rope.dimension_count", 32},
                                                   {"llama.attention.key_length", 1u << 20}};
  for (const auto& [key, value] : rows) {
    ExpectRefused(TinyLlama().SetUint32(key, value), std::string(key).substr(6));
  }
}

TEST(HyperParameters, NumbersThatWouldPoisonTheArithmeticAreRefused) {
  for (const float value : {0.0f, -1e-5f, 1.0f, std::nanf(""), INFINITY}) {
    ExpectRefused(TinyLlama().SetFloat32("llama.attention.layer_norm_rms_epsilon", value),
                  "layer_norm_rms_epsilon");
  }
  for (const float value : {0.0f, -1.0f, std::nanf(""), INFINITY}) {
    ExpectRefused(TinyLlama().SetFloat32("llama.rope.freq_base", value), "rope.freq_base");
  }
}

TEST(HyperParameters, RopeScalingIsReadOrRefused) {
  auto linear = Read(TinyLlama()
                         .SetString("llama.rope.scaling.type", "linear")
                         .SetFloat32("llama.rope.scaling.factor", 4.0f));
  ASSERT_THAT(linear, IsOk());
  EXPECT_EQ(linear->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear->rope.factor, 4.0f);

  auto older = Read(TinyLlama().SetFloat32("llama.rope.scale_linear", 2.0f));
  ASSERT_THAT(older, IsOk());
  EXPECT_EQ(older->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(older->rope.factor, 2.0f);

  auto yarn = Read(TinyLlama({.architecture = "qwen3"})
                       .SetString("qwen3.rope.scaling.type", "yarn")
                       .SetFloat32("qwen3.rope.scaling.factor", 4.0f)
                       .SetUint32("qwen3.rope.scaling.original_context_length", 128));
  ASSERT_THAT(yarn, IsOk());
  EXPECT_EQ(yarn->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn->rope.original_context, 128);

  auto factors = Read(TinyLlama({.rope_factors = true}));
  ASSERT_THAT(factors, IsOk());
  EXPECT_EQ(factors->rope.scaling, RopeScaling::kFactors);

  ExpectRefused(TinyLlama().SetString("llama.rope.scaling.type", "longrope"),
                "rope.scaling.type is 'longrope', not supported");
  ExpectRefused(TinyLlama().SetString("llama.rope.scaling.type", "llama3"), "not supported");
  ExpectRefused(TinyLlama().SetString("llama.rope.scaling.type", "linear"), "no metadata key");
  ExpectRefused(TinyLlama({.rope_factors = true})
                    .SetString("llama.rope.scaling.type", "linear")
                    .SetFloat32("llama.rope.scaling.factor", 4.0f),
                "together with the tensor rope_freqs.weight");
}

TEST(HyperParameters, ArithmeticThisBuildLacksIsRefusedNotIgnored) {
  ExpectRefused(TinyLlama().SetUint32("llama.attention.sliding_window", 4096), "sliding_window");
  ExpectRefused(TinyLlama().SetUint32("llama.expert_count", 8), "expert_count");
  ExpectRefused(TinyLlama().SetFloat32("llama.logit_scale", 0.5f), "logit_scale");
  ExpectRefused(TinyLlama().SetString("llama.attention.scale", "x"), "attention.scale");
  ExpectRefused(TinyLlama().SetBool("llama.attention.causal", false), "attention.causal");
  EXPECT_THAT(Read(TinyLlama()
                       .SetUint32("llama.attention.sliding_window", 0)
                       .SetUint32("llama.expert_count", 0)
                       .SetBool("llama.attention.causal", true)),
              IsOk());
}

TEST(HyperParameters, TheVocabularyComesFromKeyTokenizerOrEmbeddingWhichMustAgree) {
  const int32_t vocab = testing::TinyVocabSize();
  auto from_embedding = Read(TinyLlama().RemoveKey("tokenizer.ggml.tokens"));
  ASSERT_THAT(from_embedding, IsOk());
  EXPECT_EQ(from_embedding->vocab_size, vocab);
  EXPECT_THAT(Read(TinyLlama().SetUint32("llama.vocab_size", vocab)), IsOk());
  ExpectRefused(TinyLlama().SetUint32("llama.vocab_size", vocab + 1),
                "tokenizer.ggml.tokens lists");
  ExpectRefused(TinyLlama().RemoveKey("tokenizer.ggml.tokens").RemoveTensor("token_embd.weight"),
                "vocabulary of 0 tokens");
}

}  // namespace
}  // namespace shardline
