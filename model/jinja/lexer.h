#pragma once

// A template as tokens: text, and what stands between `{{`, `{%` and their ends.
//
// White space goes as model libraries have it: trim_blocks (the newline behind a block goes),
// lstrip_blocks (blanks in front of a block that starts its line go), `-` and `+` in the tags
// overrule both; the last newline of the source goes.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace shardline::jinja {

struct Position {
  int line = 1;    // From 1.
  int column = 1;  // From 1, in characters.
};

enum class TokenKind {
  kText,        // Between tags; `text` is what is written.
  kPrintBegin,  // {{
  kPrintEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kInteger,  // `text` is the number, digits only, perhaps with 0x, 0o or 0b in front.
  kFloat,
  kString,    // `text` is the value, escapes undone.
  kOperator,  // `text` is the symbol.
  kEnd,
};

struct Token {
  TokenKind kind;
  Position at;
  std::string text;
};

// "3:17: what", the shape of every error that knows its place.
absl::Status FaultAt(const Position& at, std::string_view what);

// The tokens, the last one kEnd. `source` longer than this many bytes is refused.
inline constexpr size_t kSourceBytesMax = size_t{1} << 20;
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace shardline::jinja
