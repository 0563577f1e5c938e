#pragma once

// Regular expressions of JSON schema (`pattern`) to GBNF.
//
// Understood: literals, `.`, classes, \d \w \s and their opposites, \n \r \t \f \v \xHH \uHHHH,
// groups (…) and (?:…), alternatives, the quantifiers * + ? {m} {m,} {m,n} with or without a `?`
// behind, and ^ and $ at the ends of an alternative. An end that is not anchored may be anything.
// Whatever else there is (back references, look-around, \b, …) is refused. Pure; any thread.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/grammar/grammar_builder.h"

namespace shardline {

inline constexpr size_t kJsonPatternBytesMax = 4096;
inline constexpr int kJsonPatternNestingMax = 32;

// A rule for a JSON string, quotes included, whose value matches `pattern`. kInvalidRequest with
// the place in the pattern.
absl::StatusOr<std::string> AddJsonPattern(std::string_view pattern, GrammarBuilder* grammar);

}  // namespace shardline
