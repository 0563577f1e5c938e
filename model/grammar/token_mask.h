#pragma once

// Which tokens keep a text inside its grammar.
//
// Follows one text token by token. Masks are kept by place, so a text that stays where it is, as
// inside a JSON string, pays for its mask once. Not thread-safe: belongs to one request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"
#include "model/grammar/token_trie.h"

namespace shardline {

inline constexpr size_t kTokenMasksMax = 64;  // Kept at once.

class TokenMask {
 public:
  // Bit i % 64 of word i / 64 is token i; as many as the tokenizer has.
  using Words = std::vector<uint64_t>;

  // `end_tokens` end the text and are no part of it.
  TokenMask(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
            std::span<const int32_t> end_tokens);

  // What may come next: the tokens whose bytes the grammar goes on with, and the end tokens where
  // the text may be over. Control tokens only before the trigger, which may be one of them. Valid
  // until the next call. Not the grammar's word once met_limit().
  const Words& Allowed();

  // `token`, no end token, is part of the text now. What was not allowed leads nowhere.
  void Accept(int32_t token);

  bool CanEnd() const { return walk_.CanEnd(place_); }
  bool MustEnd() const { return walk_.MustEnd(place_); }
  bool is_nowhere() const { return place_ == GrammarWalk::kNowhere; }
  bool met_limit() const { return walk_.met_limit(); }

 private:
  Words Compute();
  GrammarWalk::Place Follow(std::string_view bytes);

  const std::shared_ptr<const TokenTrie> trie_;
  const std::vector<int32_t> end_tokens_;
  GrammarWalk walk_;
  GrammarWalk::Place place_;
  absl::flat_hash_map<GrammarWalk::Place, Words> masks_;
  std::vector<GrammarWalk::Place> path_;  // Scratch: by depth.
};

}  // namespace shardline
