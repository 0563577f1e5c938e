#include "model/grammar/token_trie.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace shardline {
namespace {

constexpr size_t kTokenBytesMax = UINT16_MAX;

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

}  // namespace

TokenTrie::TokenTrie(std::shared_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)) {
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    const std::string_view bytes = vocabulary_->Bytes(id);
    if (vocabulary_->TraitsOf(id).is_control) {
      control_tokens_.push_back(id);
    } else if (!bytes.empty() && bytes.size() <= kTokenBytesMax) {
      texts.emplace_back(bytes, id);
    }
  }
  std::sort(texts.begin(), texts.end());
  // Sorted, a token stands behind all its prefixes: each opens the nodes that the one before lacks.
  std::vector<uint32_t> open;  // The nodes down to the last token.
  std::string_view before;
  const auto close_to = [&](size_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].skip_to = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  for (const auto& [text, id] : texts) {
    close_to(CommonPrefix(before, text));
    while (open.size() < text.size()) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.token_begin = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(open.size()),
                        .byte = static_cast<uint8_t>(text[open.size() - 1])});
    }
    tokens_.push_back(id);
    depth_max_ = std::max(depth_max_, static_cast<uint32_t>(text.size()));
    before = text;
  }
  close_to(0);
  nodes_.push_back({.token_begin = static_cast<uint32_t>(tokens_.size())});
}

}  // namespace shardline
