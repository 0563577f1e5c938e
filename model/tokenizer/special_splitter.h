#pragma once

// Finds special tokens that are spelled out in a text, before anything else looks at it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline {

// A stretch of text, or one special token in it.
struct TextSegment {
  std::string_view text;  // Empty for a token.
  int32_t token = -1;     // -1 for text.
};

// Immutable, any thread. The vocabulary must outlive it.
class SpecialSplitter {
 public:
  // Looks for the special tokens of `vocabulary`, or for those that are not control tokens.
  SpecialSplitter(const Vocabulary* vocabulary, bool with_control);

  // `text` in order, without empty segments. The longest token wins wherever it stands, then the
  // leftmost. Tokens that strip spaces take the white space on that side with them.
  std::vector<TextSegment> Split(std::string_view text) const;

 private:
  struct Found {
    size_t begin;
    int32_t token;
  };

  int32_t TokenAt(std::string_view text, size_t begin, size_t bytes) const;

  const Vocabulary* const vocabulary_;
  absl::flat_hash_map<std::string_view, int32_t> tokens_;  // Keys view the vocabulary's texts.
  std::array<std::vector<size_t>, 256> lengths_;  // By first byte: bytes of the tokens, ascending.
};

}  // namespace shardline
