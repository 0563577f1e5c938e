#include "tests/support/made_vocabulary.h"

#include "base/check.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline::testing {

std::shared_ptr<const TokenTrie> MadeVocabulary() {
  static const auto* const trie = [] {
    TokenizerSpec spec = {.type = "gpt2"};
    // Bytes, three of which are those of the euro sign; and tokens of several.
    for (const std::string_view byte :
         {"{", "}", "\"", ":", ",", " ",  "[",  "]",    "-",    ".",   "0",
          "1", "2", "7",  "9", "a", "b",  "c",  "d",    "e",    "f",   "l",
          "n", "r", "s",  "t", "u", "\\", "\n", "\xe2", "\x82", "\xac"}) {
      spec.tokens.push_back(ByteLevelSpelling(static_cast<uint8_t>(byte[0])));
    }
    for (const std::string_view text : {"{\"", "\":", "\",", "ab", "abc", "12", "true", "false",
                                        "null", "},", "]}", "bc\"", "\\n", "tool"}) {
      std::string spelled;
      for (const char byte : text) spelled += ByteLevelSpelling(static_cast<uint8_t>(byte));
      spec.tokens.push_back(spelled);
    }
    spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
    for (const char* const control : {"<end>", "<tool>"}) {
      spec.tokens.emplace_back(control);
      spec.token_types.push_back(TokenType::kControl);
    }
    SL_CHECK(spec.tokens.size() == kMadeVocabularySize);
    auto vocabulary = Vocabulary::CreateByType(&spec);
    SL_CHECK(vocabulary.ok());
    return new std::shared_ptr<const TokenTrie>(
        std::make_shared<const TokenTrie>(*std::move(vocabulary)));
  }();
  return *trie;
}

std::string MadeText(const std::vector<int32_t>& tokens) {
  const Vocabulary& vocabulary = MadeVocabulary()->vocabulary();
  std::string out;
  for (const int32_t token : tokens) {
    if (!vocabulary.TraitsOf(token).is_control) out += vocabulary.Bytes(token);
  }
  return out;
}

}  // namespace shardline::testing
