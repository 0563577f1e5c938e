#include "model/tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Words(const std::string& name, const std::string& text) {
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(name);
  EXPECT_THAT(pre_tokenizer, IsOk());
  std::vector<size_t> ends;
  EXPECT_THAT(pre_tokenizer->Split(text, &ends), IsOk());
  std::vector<std::string> words;
  size_t begin = 0;
  for (const size_t end : ends) {
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

TEST(PreTokenizer, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT(PreTokenizer::Create("nonesuch"),
              StatusHas(absl::StatusCode::kUnimplemented,
                        AllOf(HasSubstr("nonesuch"), HasSubstr("llama-bpe"), HasSubstr("qwen2"))));
}

TEST(PreTokenizer, NoTextHasNoWords) { EXPECT_THAT(Words("smollm", ""), ElementsAre()); }

TEST(PreTokenizer, NumbersAreCutAsTheFamilyWants) {
  EXPECT_THAT(Words("gpt-2", "a 12345"), ElementsAre("a", " 12345"));
  EXPECT_THAT(Words("smollm", "a 123"), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(Words("llama-bpe", "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(Words("qwen2", "a 12"), ElementsAre("a", " ", "1", "2"));
}

TEST(PreTokenizer, OnlySomeFamiliesCutUpperCaseSuffixes) {
  EXPECT_THAT(Words("gpt-2", "IT'S"), ElementsAre("IT", "'", "S"));
  EXPECT_THAT(Words("llama-bpe", "IT'S"), ElementsAre("IT", "'S"));
}

TEST(PreTokenizer, TheLastSpaceGoesWithTheNextWord) {
  EXPECT_THAT(Words("gpt-2", "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(Words("gpt-2", "a   "), ElementsAre("a", "   "));
}

TEST(PreTokenizer, AMongolianVowelSeparatorIsNoSpace) {
  EXPECT_THAT(Words("gpt-2", "a\u180e!"), ElementsAre("a", "\u180e!"));
}

TEST(PreTokenizer, AMegabyteOfOneCharacterIsOneWord) {
  for (const char* unit : {" ", "a", "A", "!", "\n", "\u6b6a"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
      EXPECT_EQ(Words(name, text).size(), 1u) << name << " " << unit;
    }
  }
}

}  // namespace
}  // namespace shardline
