#include "model/tokenizer/tokenizer.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr EncodeOptions kSpecial = {.add_special = true, .parse_special = true};

// Ids 0 to 255 are the bytes; 256 "he", 257 "ll", 258 "hell", 259 <|im_end|>, 260 <s>.
TokenizerSpec ByteLevelSpec() {
  TokenizerSpec spec = {.type = "gpt2", .pre = "gpt-2"};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteLevelSpelling(static_cast<uint8_t>(byte)));
  }
  for (const char* text : {"he", "ll", "hell", "<|im_end|>", "<s>"}) spec.tokens.push_back(text);
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.token_types[260] = TokenType::kControl;
  spec.merges = {"l l", "h e", "he ll"};
  spec.bos_id = 260;
  return spec;
}

// 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes, then "▁", "a", "b", "ab", "▁ab".
TokenizerSpec SentencePieceSpec() {
  TokenizerSpec spec = {.type = "llama"};
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    spec.token_types.push_back(TokenType::kByte);
  }
  for (const char* text : {"\u2581", "a", "b", "ab", "\u2581ab"}) {
    spec.tokens.push_back(text);
    spec.token_types.push_back(TokenType::kNormal);
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    spec.scores.push_back(-static_cast<float>(id));
  }
  return spec;
}

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_THAT(tokenizer, IsOk());
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         const EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_THAT(ids, IsOk());
  return *ids;
}

void ExpectRefused(TokenizerSpec spec, absl::StatusCode code, const std::string& message) {
  EXPECT_THAT(Tokenizer::Create(std::move(spec)), StatusHas(code, HasSubstr(message)));
}

TEST(Tokenizer, MergesByRankNotByPlace) {
  EXPECT_THAT(Ids(*Make(ByteLevelSpec()), "hello"), ElementsAre(258, 'o'));
}

TEST(Tokenizer, AMergeThatIsNoTokenFallsApart) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.merges.push_back("x y");
  EXPECT_THAT(Ids(*Make(std::move(spec)), "xy"), ElementsAre('x', 'y'));
}

TEST(Tokenizer, AByteWithoutATokenIsDropped) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.tokens['q'] = "unused";
  EXPECT_THAT(Ids(*Make(std::move(spec)), "aqb"), ElementsAre('a', 'b'));
}

TEST(Tokenizer, ControlTokensAreTextUnlessAsked) {
  const auto tokenizer = Make(ByteLevelSpec());
  EXPECT_THAT(Ids(*tokenizer, "<s>"), ElementsAre('<', 's', '>'));
  EXPECT_THAT(Ids(*tokenizer, "<s>", {.parse_special = true}), ElementsAre(260));
}

TEST(Tokenizer, AWellKnownEndTokenIsControlWhateverTheFileSays) {
  const auto tokenizer = Make(ByteLevelSpec());
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(259));
  EXPECT_TRUE(tokenizer->IsControl(259));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(260));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(-1));
  EXPECT_FALSE(tokenizer->IsControl(tokenizer->vocab_size()));
}

TEST(Tokenizer, BosAndEosFollowTheModelsWishes) {
  TokenizerSpec spec = ByteLevelSpec();
  EXPECT_THAT(Ids(*Make(spec), "a", kSpecial), ElementsAre('a'));
  spec.add_bos = true;
  spec.add_eos = true;
  spec.eos_id = 259;
  EXPECT_THAT(Ids(*Make(spec), "a", kSpecial), ElementsAre(260, 'a', 259));
  EXPECT_THAT(Ids(*Make(spec), "a", {}), ElementsAre('a'));
  EXPECT_THAT(Ids(*Make(spec), "", kSpecial), ElementsAre(260, 259));
}

TEST(Tokenizer, DecodeHidesControlTokensUnlessAsked) {
  const auto tokenizer = Make(ByteLevelSpec());
  const std::vector<int32_t> ids = {260, 258, 'o', 259};
  EXPECT_EQ(*tokenizer->Decode(ids, false), "hello");
  EXPECT_EQ(*tokenizer->Decode(ids, true), "<s>hello<|im_end|>");
  EXPECT_EQ(tokenizer->TokenBytes(0xE6), "\xE6");
}

TEST(Tokenizer, DecodeRefusesIdsOutsideTheVocabulary) {
  const auto tokenizer = Make(ByteLevelSpec());
  for (const int32_t id : {-1, 261, std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(tokenizer->Decode(std::vector<int32_t>{id}, true),
                StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(id))));
  }
}

TEST(Tokenizer, SentencePieceTakesTheBestScoreFirst) {
  EXPECT_THAT(Ids(*Make(SentencePieceSpec()), "ab"), ElementsAre(263));
  TokenizerSpec spec = SentencePieceSpec();
  spec.add_space_prefix = false;
  EXPECT_THAT(Ids(*Make(spec), "aba"), ElementsAre(262, 260));
}

TEST(Tokenizer, SentencePiecePutsASpaceInFrontAndTakesItOff) {
  const auto tokenizer = Make(SentencePieceSpec());
  EXPECT_THAT(Ids(*tokenizer, "<s>ab</s>a", kSpecial), ElementsAre(1, 1, 263, 2, 259, 260));
  EXPECT_EQ(*tokenizer->Decode(Ids(*tokenizer, " ab", kSpecial), false), " ab");
}

TEST(Tokenizer, SentencePieceKeepsInvalidBytes) {
  const auto tokenizer = Make(SentencePieceSpec());
  const std::string bytes =
      "a\xE6\xAD"
      "b\xFF\xF5\x80";
  EXPECT_EQ(*tokenizer->Decode(Ids(*tokenizer, bytes), false), bytes);
}

TEST(Tokenizer, BytesPastUnicodeAreDefined) {
  EXPECT_THAT(Ids(*Make(ByteLevelSpec()), "\xF5\x80\x80\x80").size(), 12u);
}

TEST(Tokenizer, AMegabyteOfOneCharacterKeepsItsLength) {
  TokenizerSpec spec = ByteLevelSpec();
  spec.merges = {"a a"};
  spec.tokens[256] = "aa";
  const auto byte_level = Make(std::move(spec));
  const auto sentencepiece = Make(SentencePieceSpec());
  for (const char unit : {'a', ' ', '<', '\n', '\xE6'}) {
    const std::string text(1u << 20, unit);
    for (const auto* tokenizer : {byte_level.get(), sentencepiece.get()}) {
      const std::string decoded = *tokenizer->Decode(Ids(*tokenizer, text, kSpecial), false);
      const bool replaced = unit == '\xE6' && tokenizer == byte_level.get();
      EXPECT_EQ(decoded.size(), text.size() * (replaced ? 3 : 1));
    }
  }
}

TEST(Tokenizer, ATextPastTheLimitIsRefused) {
  const std::string text(Tokenizer::kTextBytesMax + 1, 'a');
  EXPECT_THAT(Make(ByteLevelSpec())->Encode(text, {}),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("at most")));
}

TEST(Tokenizer, CreateNamesWhatIsWrong) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  TokenizerSpec spec = ByteLevelSpec();
  spec.type = "bert";
  ExpectRefused(spec, absl::StatusCode::kUnimplemented, "gpt2, llama");
  spec = ByteLevelSpec();
  spec.pre = "nonesuch";
  ExpectRefused(spec, absl::StatusCode::kUnimplemented, "smollm");
  ExpectRefused({.type = "gpt2"}, kInvalid, "0 tokens");
  spec = ByteLevelSpec();
  spec.tokens[7] = "he";
  ExpectRefused(spec, kInvalid, "same text as token 7");
  spec = ByteLevelSpec();
  spec.token_types.pop_back();
  ExpectRefused(spec, kInvalid, "token types");
  spec = ByteLevelSpec();
  spec.eos_id = 261;
  ExpectRefused(spec, kInvalid, "eos token id 261");
  spec = ByteLevelSpec();
  spec.merges.push_back("nospace");
  ExpectRefused(spec, kInvalid, "merge 3 \"nospace\"");
  spec = ByteLevelSpec();
  spec.add_bos = true;
  spec.bos_id.reset();
  ExpectRefused(spec, kInvalid, "names no bos");
  spec = SentencePieceSpec();
  spec.scores.pop_back();
  ExpectRefused(spec, kInvalid, "scores");
  spec = SentencePieceSpec();
  spec.scores[9] = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(spec, kInvalid, "score of token 9");
}

}  // namespace
}  // namespace shardline
