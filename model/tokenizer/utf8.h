#pragma once

// UTF-8 that bends to any bytes, for tokenizers that think in code points.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardline {

struct LenientText {
  std::string text;  // What gets tokenized.
  // What patterns see: as `text`, byte for byte as long, but strictly valid (a surrogate is a
  // private-use character) and no newer than Unicode 14, which is as far as PCRE2 10.42 goes (a
  // letter, digit or punctuation mark of 15.1 is an older one).
  std::string subject;
};

// The bytes as code points, written again as UTF-8:
//   - a sequence with the right lead and continuation bytes counts, even overlong (it becomes the
//     shortest form) or a surrogate (`text` keeps its three bytes);
//   - every other byte, and a value over U+10FFFF, is one U+FFFD, and reading goes on behind it.
LenientText MakeLenient(std::string_view bytes);

// Appends a code point, REQUIRES: code_point <= 0x10FFFF.
void AppendUtf8(uint32_t code_point, std::string* out);

// Bytes that a UTF-8 sequence with this first byte claims: 1 to 4; 1 for a continuation byte.
size_t Utf8ClaimedBytes(char lead);

// Reads one code point at `*position` by the rules above and moves past it; -1, moving past one
// byte, where there is none. REQUIRES: *position < bytes.size().
int32_t NextCodePoint(std::string_view bytes, size_t* position);

}  // namespace shardline
