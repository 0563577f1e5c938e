#pragma once

// "Did you mean": the word of a list that a mistyped one most likely was.

#include <string>
#include <string_view>
#include <vector>

namespace shardline {

// Edits (insert, remove, change, swap neighbours) that turn `a` into `b`.
int EditDistance(std::string_view a, std::string_view b);

// The closest of `words` to `typed`, if a slip of the hand explains the difference; else empty.
std::string NearMiss(std::string_view typed, const std::vector<std::string>& words);

}  // namespace shardline
