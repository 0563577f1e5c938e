#pragma once

// Makes bytes valid UTF-8 for JSON.

#include <string>
#include <string_view>

namespace shardline {

// Every byte that belongs to no well-formed sequence (Unicode 15, table 3-7) becomes one U+FFFD;
// the rest passes unchanged. For pieces that do not end inside a sequence, the repair of the whole
// is the pieces' repairs joined.
std::string RepairUtf8(std::string_view bytes);

// Code points in valid UTF-8.
size_t Utf8Length(std::string_view text);

}  // namespace shardline
