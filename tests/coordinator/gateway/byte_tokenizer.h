#pragma once

// A tokenizer with a token for every byte and a few special ones, whose ids a test can read.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline::testing {

// Byte b is token b; then come the control tokens.
inline constexpr int32_t kByteBos = 256;        // "<s>"
inline constexpr int32_t kByteEos = 257;        // "</s>"
inline constexpr int32_t kByteToolCalls = 258;  // "[TOOL_CALLS]"
inline constexpr int32_t kByteVocab = 259;

inline std::unique_ptr<const Tokenizer> MakeByteTokenizer(bool adds_bos = false) {
  TokenizerSpec spec = {.type = "gpt2", .pre = "default"};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteLevelSpelling(static_cast<uint8_t>(byte)));
  }
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const char* text : {"<s>", "</s>", "[TOOL_CALLS]"}) {
    spec.tokens.push_back(text);
    spec.token_types.push_back(TokenType::kControl);
  }
  spec.bos_id = kByteBos;
  spec.eos_id = kByteEos;
  spec.add_bos = adds_bos;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  SL_CHECK(tokenizer.ok(), tokenizer.status().ToString());
  return *std::move(tokenizer);
}

inline std::vector<int32_t> ByteTokens(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

}  // namespace shardline::testing
