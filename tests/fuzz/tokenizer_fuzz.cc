// Feeds the tokenizer any text, and any vocabulary that a file might bring.
//
// The first byte picks what to do. With a vocabulary built here: every text encodes, the ids are
// in range, and decoding gives the text back. With one spelled by the input: nothing breaks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

std::unique_ptr<Tokenizer> ByteLevel(const std::string& pre) {
  TokenizerSpec spec = {.type = "gpt2", .pre = pre};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteLevelSpelling(static_cast<uint8_t>(byte)));
  }
  for (const char* text : {"aa", "aaa", "ab", "aab", "''", "<s>", "<s><s>", "s><"}) {
    spec.tokens.push_back(text);
  }
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.token_types[261] = spec.token_types[262] = TokenType::kControl;
  spec.token_types[263] = TokenType::kUserDefined;
  spec.merges = {"a a", "a b", "aa a", "a ab", "' '", "x y"};
  spec.bos_id = 261;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  SL_CHECK(tokenizer.ok(), tokenizer.status().ToString());
  return *std::move(tokenizer);
}

std::unique_ptr<Tokenizer> SentencePiece() {
  TokenizerSpec spec = {.type = "llama", .add_space_prefix = false};
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    spec.token_types.push_back(TokenType::kByte);
  }
  for (const char* text :
       {"a", "b", "ab", "aa", "aab", "\u00e9", "a\u00e9", "\u2581", "\u2581a", "\n\n"}) {
    spec.tokens.push_back(text);
    spec.token_types.push_back(TokenType::kNormal);
  }
  spec.token_types.back() = TokenType::kUserDefined;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    spec.scores.push_back(-static_cast<float>(id * 7 % 5));
  }
  auto tokenizer = Tokenizer::Create(std::move(spec));
  SL_CHECK(tokenizer.ok(), tokenizer.status().ToString());
  return *std::move(tokenizer);
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options) {
  auto ids = tokenizer.Encode(text, options);
  SL_CHECK(ids.ok(), ids.status().ToString());
  for (const int32_t id : *ids) SL_CHECK(id >= 0 && id < tokenizer.vocab_size());
  return *std::move(ids);
}

void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text, std::string_view expected) {
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = Encode(tokenizer, text, {.parse_special = parse_special});
    SL_CHECK(*tokenizer.Decode(ids, /*show_special=*/true) == expected);
    std::string streamed;
    for (const int32_t id : ids) streamed += tokenizer.TokenBytes(id);
    SL_CHECK(streamed == expected);
  }
}

// One token or merge a line: its first character is its type or 'm'.
TokenizerSpec SpecFrom(std::string_view text, bool is_byte_level) {
  TokenizerSpec spec = {.type = is_byte_level ? "gpt2" : "llama", .pre = "llama-bpe"};
  spec.add_bos = false;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::string rest(line.substr(line.empty() ? 0 : 1));
    if (!line.empty() && line[0] == 'm') {
      spec.merges.push_back(rest);
      continue;
    }
    spec.tokens.push_back(rest);
    spec.token_types.push_back(static_cast<TokenType>(line.empty() ? 0 : line[0] & 7));
    spec.scores.push_back(static_cast<float>(rest.size()));
  }
  return spec;
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardline;  // NOLINT: the entry point must be global.
  if (size == 0) return 0;
  static const std::vector<std::unique_ptr<Tokenizer>>* const byte_level = [] {
    auto* all = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* pre :
         {"default", "gpt-2", "smollm", "falcon", "qwen2", "llama-bpe", "tekken", "gpt-4o"}) {
      all->push_back(ByteLevel(pre));
    }
    return all;
  }();
  static const Tokenizer* const sentencepiece = SentencePiece().release();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] < 128) {
    CheckRoundTrip(*(*byte_level)[data[0] % byte_level->size()], text, MakeLenient(text).text);
  } else if (data[0] < 192) {
    // U+2581 comes back as a space, and half a character swallows the space behind it.
    if (text.find("\u2581") == std::string_view::npos && MakeLenient(text).text == text) {
      CheckRoundTrip(*sentencepiece, text, text);
    }
    Encode(*sentencepiece, text, {.add_special = true, .parse_special = true});
  } else {
    const auto tokenizer = Tokenizer::Create(SpecFrom(text, data[0] % 2 == 0));
    if (!tokenizer.ok()) return 0;
    const std::vector<int32_t> ids = Encode(**tokenizer, text, {.parse_special = true});
    SL_CHECK((*tokenizer)->Decode(ids, /*show_special=*/false).ok());
  }
  return 0;
}
