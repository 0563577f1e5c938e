// Masks against the vocabulary tried token by token.

#include "model/grammar/token_mask.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/grammar/json_schema.h"
#include "tests/support/made_vocabulary.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

constexpr std::string_view kSchema = R"({"type":"object","properties":{
    "a":{"type":"array","items":{"type":"integer","minimum":-12,"maximum":97},"maxItems":3},
    "bc":{"type":"string","maxLength":4},"null":{"type":["boolean","null"]}},
    "required":["a","bc"]})";

std::shared_ptr<const Grammar> Parsed(std::string_view gbnf, std::string_view trigger = {}) {
  auto grammar = Grammar::Parse(gbnf, trigger);
  EXPECT_THAT(grammar, IsOk()) << gbnf;
  return *std::move(grammar);
}

std::shared_ptr<const Grammar> OfSchema() {
  return Parsed(*GrammarOfJsonSchema(nlohmann::ordered_json::parse(kSchema)));
}

bool Has(const TokenMask::Words& words, int32_t token) {
  return (words[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

std::vector<int32_t> TokensOf(const TokenMask::Words& words) {
  std::vector<int32_t> out;
  for (int32_t token = 0; token < kMadeVocabularySize; ++token) {
    if (Has(words, token)) out.push_back(token);
  }
  return out;
}

// What a fresh walk says of the text and then each token.
std::vector<int32_t> TriedOneByOne(const std::shared_ptr<const Grammar>& grammar,
                                   const std::string& text) {
  const Vocabulary& vocabulary = MadeVocabulary()->vocabulary();
  std::vector<int32_t> out;
  GrammarWalk walk(grammar);
  GrammarWalk::Place here = walk.start();
  for (const char byte : text) here = walk.Next(here, static_cast<uint8_t>(byte));
  for (int32_t token = 0; token < kMadeVocabularySize; ++token) {
    GrammarWalk::Place place = here;
    bool may_come = walk.CanEnd(place);
    if (token != kMadeEnd) {
      const bool is_text = !vocabulary.TraitsOf(token).is_control || walk.AwaitsTrigger(place);
      for (const char byte : vocabulary.Bytes(token)) {
        place = walk.Next(place, static_cast<uint8_t>(byte));
      }
      may_come = is_text && place != GrammarWalk::kNowhere;
    }
    if (may_come) out.push_back(token);
  }
  return out;
}

void ExpectMasksAreRight(const std::shared_ptr<const Grammar>& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    TokenMask mask(grammar, MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
    std::string text;
    for (int i = 0; i < 60 && !mask.MustEnd(); ++i) {
      const std::vector<int32_t> allowed = TokensOf(mask.Allowed());
      ASSERT_EQ(allowed, TriedOneByOne(grammar, text)) << text;
      ASSERT_FALSE(allowed.empty()) << text;
      const int32_t token = allowed[random() % allowed.size()];
      if (token == kMadeEnd) break;
      mask.Accept(token);
      text += MadeVocabulary()->vocabulary().Bytes(token);
    }
  }
}

TEST(TokenMaskTest, AllowsWhatTheGrammarGoesOnWith) { ExpectMasksAreRight(OfSchema(), 1); }

TEST(TokenMaskTest, AllowsWhatTheGrammarGoesOnWithInAnyObject) {
  ExpectMasksAreRight(Parsed(JsonObjectGrammar()), 2);
}

TEST(TokenMaskTest, AllowsWhatTheTriggerAndTheGrammarGoOnWith) {
  ExpectMasksAreRight(Parsed("root ::= \"[\" [0-9]{1,3} \"]\"", "ab"), 3);
  ExpectMasksAreRight(Parsed("root ::= \"[\" [0-9]{1,3} \"]\"", "<tool>"), 4);
}

TEST(TokenMaskTest, ATextThatGoesWhereItMayEndsAsTheSchemaSays) {
  std::mt19937 random(5);
  int ended = 0;
  for (int round = 0; round < 300; ++round) {
    TokenMask mask(OfSchema(), MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
    std::string text;
    for (int i = 0; i < 400 && !mask.MustEnd(); ++i) {
      const std::vector<int32_t> allowed = TokensOf(mask.Allowed());
      const int32_t token = allowed[random() % allowed.size()];
      mask.Accept(token);
      text += MadeVocabulary()->vocabulary().Bytes(token);
    }
    if (!mask.MustEnd()) continue;
    ++ended;
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << text;
    ASSERT_TRUE(json.contains("a") && json.contains("bc")) << text;
    EXPECT_LE(json["a"].size(), 3U);
    for (const auto& item : json["a"]) {
      EXPECT_TRUE(item.is_number_integer() && item >= -12 && item <= 97) << text;
    }
    EXPECT_TRUE(json["bc"].is_string());
    for (const auto& item : json.items()) {
      EXPECT_TRUE(item.key() == "a" || item.key() == "bc" || item.key() == "null") << text;
    }
  }
  EXPECT_GT(ended, 250);
}

TEST(TokenMaskTest, AnExactTextLeavesNoChoiceButHowItIsCut) {
  TokenMask mask(Parsed("root ::= \"abc\\\"\""), MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
  std::string text;
  while (!mask.MustEnd()) {
    for (const int32_t token : TokensOf(mask.Allowed())) {
      const std::string_view bytes = MadeVocabulary()->vocabulary().Bytes(token);
      EXPECT_EQ(std::string("abc\"").substr(text.size(), bytes.size()), bytes);
    }
    const int32_t token = TokensOf(mask.Allowed()).front();
    mask.Accept(token);
    text += MadeVocabulary()->vocabulary().Bytes(token);
  }
  EXPECT_EQ(text, "abc\"");
  EXPECT_EQ(TokensOf(mask.Allowed()), std::vector<int32_t>{kMadeEnd});
}

TEST(TokenMaskTest, HalfACharacterIsFinishedByTheRightBytes) {
  TokenMask mask(Parsed("root ::= [\\u20ac]"), MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
  for (int byte = 0; byte < 3; ++byte) {
    ASSERT_EQ(TokensOf(mask.Allowed()).size(), 1U);
    EXPECT_FALSE(mask.CanEnd());
    mask.Accept(TokensOf(mask.Allowed()).front());
  }
  EXPECT_TRUE(mask.MustEnd());
}

// Many ways to go on at every byte, each of them costly and none of them the same.
TEST(TokenMaskTest, AMaskThatCostsTooMuchIsToldAndNotFinished) {
  std::string gbnf = "root ::= w{1000}\nw ::= [a-u0-9]";
  for (int i = 0; i < 1500; ++i) gbnf += " | x" + std::to_string(i);
  for (int i = 0; i < 1500; ++i) gbnf += "\nx" + std::to_string(i) + " ::= \"a\" w{2} \"z\"";
  TokenMask mask(Parsed(gbnf), MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
  for (int i = 0; i < 20 && !mask.met_limit(); ++i) {
    mask.Allowed();
    mask.Accept(15);
  }
  EXPECT_TRUE(mask.met_limit());
}

TEST(TokenMaskTest, MasksAreRightAlsoBehindMuchThatWasForgotten) {
  const auto grammar = Parsed(
      "root ::= item{0,9000}\nitem ::= \"[\" item \"]\" | [abcdef] | \"u\" \"t\" | \"0\" \"1\"?");
  TokenMask mask(grammar, MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
  std::mt19937 random(6);
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    const std::vector<int32_t> allowed = TokensOf(mask.Allowed());
    if (i % 400 == 0) {
      ASSERT_EQ(allowed, TriedOneByOne(grammar, text));
    }
    const int32_t token = allowed[random() % allowed.size()];
    if (token == kMadeEnd) continue;
    mask.Accept(token);
    text += MadeVocabulary()->vocabulary().Bytes(token);
  }
  EXPECT_FALSE(mask.met_limit());
}

TEST(TokenMaskTest, WhatIsNotAllowedLeadsNowhere) {
  TokenMask mask(Parsed("root ::= \"a\"+"), MadeVocabulary(), std::vector<int32_t>{kMadeEnd});
  mask.Accept(kMadeControl);
  EXPECT_TRUE(mask.is_nowhere());
  EXPECT_TRUE(TokensOf(mask.Allowed()).empty());
  EXPECT_FALSE(mask.MustEnd());
}

}  // namespace
}  // namespace shardline::testing
