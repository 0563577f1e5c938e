#pragma once

// The words of JSON as GBNF: white space, strings, numbers, any value.
//
// White space is none, one space, or a line break and up to 20 spaces: bounded, so that no text can
// dwell in it. Pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/grammar/code_points.h"
#include "model/grammar/grammar_builder.h"

namespace shardline {

// Integers that are spelled have no more digits than this.
inline constexpr int64_t kJsonIntegerMax = 999'999'999'999'999'999;

// Names of shared rules, which are added if they are not there yet.
std::string JsonSpace(GrammarBuilder* grammar);
std::string JsonCharacter(GrammarBuilder* grammar);  // One, of a string.
std::string JsonString(GrammarBuilder* grammar);
std::string JsonNumber(GrammarBuilder* grammar);
std::string JsonInteger(GrammarBuilder* grammar);
std::string JsonObject(GrammarBuilder* grammar);
std::string JsonArray(GrammarBuilder* grammar);
std::string JsonValue(GrammarBuilder* grammar);

// How a string spells one character of `set`; empty if it spells none of them. Control characters
// without a short escape count only where the set is of one character.
std::string JsonCharacterOf(const CodePoints& set);

// Integers between both, without a sign if they have none; empty if there are none.
std::string JsonIntegerBetween(int64_t low, int64_t high);

struct JsonNumberBounds {
  std::optional<int64_t> low;
  std::optional<int64_t> high;
  bool without_low = false;  // The bound itself is out.
  bool without_high = false;
};
// Numbers within bounds; as many digits as tell doubles apart, no exponent. Empty if there are
// none.
std::string JsonNumberBetween(const JsonNumberBounds& bounds);

}  // namespace shardline
