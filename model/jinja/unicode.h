#pragma once

// Case and visibility of characters, as Python's str has them.

#include <string>
#include <string_view>

namespace shardline::jinja {

// False for what repr escapes.
bool IsPrintable(char32_t code_point);

// Full mappings: one character may become several. A final sigma is told by its two neighbours
// alone.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalized(std::string_view text);  // The first character in title case, lower rest.
std::string TitleCased(std::string_view text);   // So for every run of cased characters.

}  // namespace shardline::jinja
