#include "model/tokenizer/special_splitter.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<const Vocabulary> MakeVocabulary(const std::string& model_name = "") {
  TokenizerSpec spec;
  spec.model_name = model_name;
  spec.tokens = {"a", "<s>", "<s><s>", "<tool>", "ool>x"};
  spec.token_types = {TokenType::kNormal, TokenType::kControl, TokenType::kControl,
                      TokenType::kUserDefined, TokenType::kUserDefined};
  auto vocabulary = Vocabulary::Create(&spec, TokenSpelling::kByteLevel);
  EXPECT_THAT(vocabulary, testing::IsOk());
  return *std::move(vocabulary);
}

// Texts as they are, tokens as #id.
std::vector<std::string> Split(const Vocabulary& vocabulary, bool with_control,
                               const std::string& text) {
  std::vector<std::string> result;
  for (const TextSegment& segment : SpecialSplitter(&vocabulary, with_control).Split(text)) {
    result.push_back(segment.token < 0 ? std::string(segment.text)
                                       : "#" + std::to_string(segment.token));
  }
  return result;
}

TEST(SpecialSplitter, CutsControlTokensOnlyWhenAsked) {
  const auto vocabulary = MakeVocabulary();
  EXPECT_THAT(Split(*vocabulary, true, "x<s>y<tool>"), ElementsAre("x", "#1", "y", "#3"));
  EXPECT_THAT(Split(*vocabulary, false, "x<s>y<tool>"), ElementsAre("x<s>y", "#3"));
}

TEST(SpecialSplitter, TheLongestTokenWinsEvenFromBehind) {
  const auto vocabulary = MakeVocabulary();
  EXPECT_THAT(Split(*vocabulary, true, "<s><s><s>"), ElementsAre("#2", "#1"));
  EXPECT_THAT(Split(*vocabulary, true, "<tool>x"), ElementsAre("#3", "x"));
}

TEST(SpecialSplitter, OrdinaryTextIsOneSegment) {
  const auto vocabulary = MakeVocabulary();
  EXPECT_THAT(Split(*vocabulary, true, "<s <too a"), ElementsAre("<s <too a"));
  EXPECT_THAT(Split(*vocabulary, true, ""), ElementsAre());
}

TEST(SpecialSplitter, Phi3TokensTakeTheSpaceBehindThem) {
  const auto vocabulary = MakeVocabulary("Phi-3 Mini");
  EXPECT_THAT(Split(*vocabulary, true, "x <tool> \n y<s> z"),
              ElementsAre("x ", "#3", "y", "#1", " z"));
  EXPECT_THAT(Split(*vocabulary, true, "<tool>  <tool> "), ElementsAre("#3", "#3"));
}

}  // namespace
}  // namespace shardline
