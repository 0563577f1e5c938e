#pragma once

// What a request wants of its own text: a grammar, texts that end it, a least length.
//
// TextRules is what was asked for, checked and compiled; any thread. MakeTextRulesPolicy makes of
// it the policy of one attempt (row_policy.h). All it knows follows from the tokens that were
// drawn, so an attempt that takes over, told of them, goes on exactly.

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
  std::vector<std::string> stop_texts;     // Not empty.
  uint32_t new_tokens_min = 0;

  bool empty() const { return grammar == nullptr && stop_texts.empty() && new_tokens_min == 0; }
};

// As in head.proto. kInvalidRequest naming the field for a grammar that is none, a trigger without
// grammar, too many or too long stop texts, or an empty one.
struct TextRulesSpec {
  std::string_view grammar;
  std::string_view trigger;
  std::vector<std::string> stop_texts;
  uint32_t new_tokens_min = 0;
};
absl::StatusOr<TextRules> MakeTextRules(TextRulesSpec spec);

// `stop_tokens` end the run and are no part of its text. Null if `rules` ask for nothing.
std::unique_ptr<RowPolicy> MakeTextRulesPolicy(const TextRules& rules,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               std::vector<int32_t> stop_tokens);

}  // namespace shardline
