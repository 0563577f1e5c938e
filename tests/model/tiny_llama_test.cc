#include "tests/support/tiny_llama.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_layout.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

constexpr GgufTensorType kTypes[] = {
    GgufTensorType::kF32,  GgufTensorType::kF16,  GgufTensorType::kBF16, GgufTensorType::kQ8_0,
    GgufTensorType::kQ4_0, GgufTensorType::kQ4_1, GgufTensorType::kQ5_0, GgufTensorType::kQ5_1,
    GgufTensorType::kQ4_K, GgufTensorType::kQ5_K, GgufTensorType::kQ6_K};

float Half(const char* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  const int exponent = (half >> 10) & 0x1F;
  const float mantissa = static_cast<float>(half & 0x3FF);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024.0f, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(TinyLlama, IsAWholeModelInEveryWeightType) {
  for (const GgufTensorType type : kTypes) {
    const std::string path = MakeTinyLlama(
        FreshDirectory(),
        {.layers = 1, .hidden = 256, .ff = 256, .tied = false, .weights = type, .embedding = type});
    const auto file = GgufFile::Open(path);
    ASSERT_THAT(file, IsOk());
    const auto hp = HyperParameters::FromGguf(*file);
    ASSERT_THAT(hp, IsOk());
    EXPECT_THAT(CheckTensors(*file, *hp), IsOk());
    EXPECT_EQ(file->FindTensor("blk.0.attn_q.weight")->type, type);
  }
}

TEST(TinyLlama, IsTheSameEveryTimeAndAnotherForAnotherSeed) {
  EXPECT_EQ(TinyLlama().Encode(), TinyLlama().Encode());
  EXPECT_NE(TinyLlama().Encode(), TinyLlama({.seed = 2}).Encode());
  // A tensor's numbers do not depend on what else the model has.
  EXPECT_EQ(TinyLlama().tensor("blk.0.attn_q.weight").bytes,
            TinyLlama({.layers = 7, .tied = false}).tensor("blk.0.attn_q.weight").bytes);
}

TEST(TinyLlama, TheTokenizerSpellsEveryByteOnceAndEveryMergeExists) {
  const std::string bytes = TinyLlama().Encode();
  const auto file = GgufFile::View("m", std::as_bytes(std::span(bytes.data(), bytes.size())));
  ASSERT_THAT(file, IsOk());
  const auto tokens = *file->metadata().GetStringArray("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), static_cast<size_t>(TinyVocabSize()));
  const std::set<std::string_view> known(tokens.begin(), tokens.end());
  EXPECT_EQ(known.size(), tokens.size());
  EXPECT_EQ(tokens[kTinyFirstByte + 'A'], "A");
  EXPECT_EQ(tokens[kTinyFirstByte + ' '], "\u0120");
  EXPECT_EQ(tokens[kTinyFirstByte + '\n'], "\u010a");
  EXPECT_EQ(tokens[kTinyFirstByte + 0xE9], "\u00e9");
  EXPECT_EQ(tokens[kTinyFirstByte + 0xAD], "\u0143");  // The last of those spelt otherwise.
  const auto merges = *file->metadata().GetStringArray("tokenizer.ggml.merges");
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ');
    EXPECT_TRUE(known.contains(merge.substr(0, space))) << merge;
    EXPECT_TRUE(known.contains(merge.substr(space + 1))) << merge;
    EXPECT_TRUE(known.contains(std::string(merge).erase(space, 1))) << merge;
  }
}

TEST(EncodeWeights, RoundsToTheNearestStoredValue) {
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = std::sin(static_cast<float>(i) * 1.7f);

  const std::string half = EncodeWeights(GgufTensorType::kF16, values, 1);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(Half(&half[2 * i]), values[i], 0x1p-11f);

  const std::string q8 = EncodeWeights(GgufTensorType::kQ8_0, values, 1);
  ASSERT_EQ(q8.size(), 34u);
  const float d8 = Half(q8.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(d8 * static_cast<float>(static_cast<int8_t>(q8[2 + i])), values[i], d8 * 0.6f);
  }

  const std::string q4 = EncodeWeights(GgufTensorType::kQ4_0, values, 1);
  ASSERT_EQ(q4.size(), 18u);
  const float d4 = Half(q4.data());
  const std::string q41 = EncodeWeights(GgufTensorType::kQ4_1, values, 1);
  ASSERT_EQ(q41.size(), 20u);
  for (int i = 0; i < 32; ++i) {
    const int shift = i < 16 ? 0 : 4;
    const int code4 = (static_cast<uint8_t>(q4[2 + i % 16]) >> shift) & 15;
    // One step: the end opposite to the extreme value is cut.
    EXPECT_NEAR(d4 * static_cast<float>(code4 - 8), values[i], std::fabs(d4) * 1.01f);
    const int code41 = (static_cast<uint8_t>(q41[4 + i % 16]) >> shift) & 15;
    EXPECT_NEAR(Half(q41.data()) * static_cast<float>(code41) + Half(&q41[2]), values[i],
                Half(q41.data()) * 0.51f);
  }
}

TEST(EncodeWeights, HalvesCoverSubnormalsAndTies) {
  const std::vector<float> values = {0.0f,     -0.0f,        1.0f,     0x1p-24f,
                                     0x1p-15f, 1 + 0x1p-11f, 65503.0f, -2.0f};
  const std::string half = EncodeWeights(GgufTensorType::kF16, values, 1);
  const float wanted[] = {0.0f, -0.0f, 1.0f, 0x1p-24f, 0x1p-15f, 1.0f, 65504.0f, -2.0f};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Half(&half[2 * i]), wanted[i]) << i;
}

}  // namespace
}  // namespace shardline::testing
