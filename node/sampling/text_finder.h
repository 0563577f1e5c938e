#pragma once

// Finds a text in a stream of bytes, however it is cut. Not thread-safe.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

class TextFinder {
 public:
  // REQUIRES: `text` is not empty.
  explicit TextFinder(std::string text);

  // More of the stream; true if `text` is whole somewhere in what came so far.
  bool Read(std::string_view bytes);

 private:
  std::string text_;
  std::vector<size_t> fallbacks_;  // By matched bytes: the longest shorter match at the same place.
  size_t matched_ = 0;
  bool is_found_ = false;
};

}  // namespace shardline
