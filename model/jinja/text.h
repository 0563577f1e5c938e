#pragma once

// Strings as Python has them, a row of code points, over UTF-8. All bytes here are valid UTF-8:
// IsUtf8 guards the edges of the room.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardline::jinja {

bool IsUtf8(std::string_view bytes);

// The code point at `*position`, moving past it. REQUIRES: *position < text.size().
char32_t NextCodePoint(std::string_view text, size_t* position);
void AppendUtf8(char32_t code_point, std::string* out);

size_t CodePointCount(std::string_view text);
// The byte at which code point `index` starts; text.size() past the end.
size_t OffsetOf(std::string_view text, size_t index);

// What str.isspace, strip and split take for white space.
bool IsSpace(char32_t code_point);

// `characters` empty: white space.
std::string_view StripLeft(std::string_view text, std::string_view characters = {});
std::string_view StripRight(std::string_view text, std::string_view characters = {});

// At runs of white space, at most `splits` times (all if negative); the rest stays one piece.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits, bool from_right);
// REQUIRES: separator is not empty.
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t splits, bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// What looking for `part` in `text` may cost, in steps of a meter.
size_t SearchSteps(std::string_view text, std::string_view part);

// How often `part` occurs without overlap; an empty one between all code points.
size_t CountOf(std::string_view text, std::string_view part);
// The first `count` occurrences (all if negative).
std::string ReplaceIn(std::string_view text, std::string_view part, std::string_view by,
                      int64_t count);

// As Python's repr: quoted, with what cannot be printed escaped.
std::string Quoted(std::string_view text);

}  // namespace shardline::jinja
