#pragma once

// A vocabulary by the bytes of its tokens: which tokens may come next, for any automaton of bytes.
//
// A trie laid out in depth-first order, so that a walk over it is one pass over an array that jumps
// over what is refused. About 14 bytes a node; a vocabulary of 49,000 tokens has 110,000 nodes.
// Immutable, any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace shardline {

class TokenTrie {
 public:
  struct Node {
    uint32_t skip_to;      // The first node that is not below this one.
    uint32_t token_begin;  // Its tokens: up to the next node's token_begin.
    uint16_t depth;        // Bytes down to it, its own included: from 1.
    uint8_t byte;
  };

  // All tokens of `tokenizer` that are text: without control tokens, and those without bytes.
  // `tokenizer` must outlive it.
  explicit TokenTrie(const Tokenizer* tokenizer);

  int32_t vocab_size() const { return tokenizer_->vocab_size(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Ids, ascending.
  const std::vector<int32_t>& control_tokens() const { return control_tokens_; }

  // In depth-first order, with one more at the end that only has a token_begin.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const int32_t> TokensOf(uint32_t node) const;
  uint32_t depth_max() const { return depth_max_; }

 private:
  const Tokenizer* const tokenizer_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> control_tokens_;
  uint32_t depth_max_ = 0;
};

}  // namespace shardline
