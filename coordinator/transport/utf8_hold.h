#pragma once

// Cuts a stream of bytes so that no piece ends inside a UTF-8 sequence.
//
// Tokens of a byte-level tokenizer may carry part of a character. What could still become one is
// held back until it does, or until it no longer can. Bytes that are no UTF-8 pass unchanged and
// without delay: nothing is replaced here. The concatenation of all pieces and the rest is the
// concatenation of all input.

#include <string>
#include <string_view>
#include <utility>

namespace shardline {

class Utf8Hold {
 public:
  // The bytes that may go out now.
  std::string Push(std::string_view bytes) {
    held_.append(bytes);
    const size_t whole = held_.size() - IncompleteTail(held_);
    std::string out = held_.substr(0, whole);
    held_.erase(0, whole);
    return out;
  }

  // What is left at the end of the stream.
  std::string Flush() { return std::exchange(held_, std::string()); }

  // Bytes at the end of `bytes` that begin a sequence without finishing it: 0 to 3.
  static size_t IncompleteTail(std::string_view bytes);

 private:
  std::string held_;  // At most 3 bytes.
};

}  // namespace shardline
