#pragma once

// A vocabulary by the bytes of its tokens: which tokens may come next, for any automaton of bytes.
//
// A trie laid out in depth-first order, so that a walk over it is one pass over an array that jumps
// over what is refused; 12 bytes a node. Immutable, any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace shardline {

class TokenTrie {
 public:
  struct Node {
    uint32_t skip_to;      // The first node that is not below this one.
    uint32_t token_begin;  // Its tokens: up to the next node's token_begin.
    uint16_t depth;        // Bytes down to it, its own included: from 1.
    uint8_t byte;
  };

  // All tokens that add to a text: not control tokens, and not those without bytes or with more
  // than 65,535. REQUIRES: `vocabulary` is not null.
  explicit TokenTrie(std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::vector<int32_t>& control_tokens() const { return control_tokens_; }

  // Depth first, children by byte. One more stands at the end, which only has a token_begin.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const int32_t> TokensOf(const Node& node) const {
    return std::span(tokens_).subspan(node.token_begin, (&node)[1].token_begin - node.token_begin);
  }
  uint32_t depth_max() const { return depth_max_; }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> control_tokens_;
  uint32_t depth_max_ = 0;
};

}  // namespace shardline
