#include "model/grammar/token_mask.h"

#include <utility>

namespace shardline {
namespace {

void Set(TokenMask::Words& words, int32_t token, bool allowed) {
  const auto bit = static_cast<size_t>(token);
  const uint64_t mask = uint64_t{1} << (bit % 64);
  if (allowed) {
    words[bit / 64] |= mask;
  } else {
    words[bit / 64] &= ~mask;
  }
}

}  // namespace

TokenMask::TokenMask(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                     std::span<const int32_t> end_tokens)
    : trie_(std::move(trie)),
      end_tokens_(end_tokens.begin(), end_tokens.end()),
      walk_(std::move(grammar)),
      place_(walk_.start()),
      path_(trie_->depth_max() + 1) {}

const TokenMask::Words& TokenMask::Allowed() {
  if (masks_.size() >= kTokenMasksMax) masks_.clear();
  const auto [it, is_new] = masks_.try_emplace(place_);
  if (is_new) it->second = Compute();
  return it->second;
}

TokenMask::Words TokenMask::Compute() {
  const Vocabulary& vocabulary = trie_->vocabulary();
  Words words((static_cast<size_t>(vocabulary.size()) + 63) / 64, 0);
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  path_[0] = place_;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const GrammarWalk::Place next = walk_.Next(path_[node.depth - 1], node.byte);
    if (next == GrammarWalk::kNowhere) {
      i = node.skip_to;
      continue;
    }
    path_[node.depth] = next;
    for (const int32_t token : trie_->TokensOf(node)) Set(words, token, true);
    ++i;
  }
  if (walk_.AwaitsTrigger(place_)) {
    for (const int32_t token : trie_->control_tokens()) {
      const bool goes_on = Follow(vocabulary.Bytes(token)) != GrammarWalk::kNowhere;
      Set(words, token, goes_on);
    }
  }
  for (const int32_t token : end_tokens_) {
    if (vocabulary.Has(token)) Set(words, token, CanEnd());
  }
  return words;
}

GrammarWalk::Place TokenMask::Follow(std::string_view bytes) {
  GrammarWalk::Place place = place_;
  for (const char byte : bytes) place = walk_.Next(place, static_cast<uint8_t>(byte));
  return place;
}

void TokenMask::Accept(int32_t token) {
  if (walk_.Forget(&place_)) masks_.clear();
  const Vocabulary& vocabulary = trie_->vocabulary();
  const bool is_text = vocabulary.Has(token) &&
                       (!vocabulary.TraitsOf(token).is_control || walk_.AwaitsTrigger(place_));
  place_ = is_text ? Follow(vocabulary.Bytes(token)) : GrammarWalk::kNowhere;
}

}  // namespace shardline
