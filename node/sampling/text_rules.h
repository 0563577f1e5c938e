#pragma once

// What a request wants of its own text: a grammar, texts that end it, a least length.
//
// TextRules is what was asked for, checked and compiled; any thread. The policy made of it is one
// attempt's (row_policy.h): all it knows follows from the tokens that were drawn, so an attempt
// that takes over, told of them, goes on exactly.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/grammar/grammar.h"
#include "model/grammar/token_trie.h"
#include "node/sampling/row_policy.h"

namespace shardline {

inline constexpr size_t kStopTextsMax = 64;
inline constexpr size_t kStopTextBytesMax = 1024;

struct TextRules {
  std::shared_ptr<const Grammar> grammar;  // Null: any text.
  std::vector<std::string> stop_texts;     // None is empty.
  uint32_t new_tokens_min = 0;

  bool empty() const { return grammar == nullptr && stop_texts.empty() && new_tokens_min == 0; }
};

// In the terms of head.proto.
struct TextRulesSpec {
  std::string_view grammar;
  std::string_view trigger;
  std::vector<std::string> stop_texts;
  uint32_t new_tokens_min = 0;
};

// kInvalidRequest, naming the field: a grammar that is none, a trigger without one, too many stop
// texts, too long a one, or an empty one.
absl::StatusOr<TextRules> CompileTextRules(TextRulesSpec spec);

// Tokens that cannot follow are ruled out:
//   - what the grammar does not go on with, and stop tokens where it may not be over;
//   - stop tokens before new_tokens_min others.
// Finished with the token that completes a stop text, or when the grammar lets nothing follow.
// Apply fails with kInvalidRequest where the grammar lets nothing follow a text that is not over.
// `stop_tokens` end the run and are no part of its text. REQUIRES: rules are not empty.
std::unique_ptr<RowPolicy> MakeTextRulesPolicy(const TextRules& rules,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               std::vector<int32_t> stop_tokens);

}  // namespace shardline
