#pragma once

// A small vocabulary of letters, JSON and what joins them, for tests of rules on texts.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/token_trie.h"

namespace shardline::testing {

inline constexpr int32_t kMadeVocabularySize = 48;
inline constexpr int32_t kMadeEnd = 46;      // <end>: a control token.
inline constexpr int32_t kMadeControl = 47;  // <tool>: another.

std::shared_ptr<const TokenTrie> MadeVocabulary();

// What the tokens say, control tokens left out.
std::string MadeText(const std::vector<int32_t>& tokens);

}  // namespace shardline::testing
