#include "node/rounds/prompt_lookup.h"

#include <algorithm>

namespace shardline {
namespace {

// Agreement beyond it makes nothing likelier.
constexpr size_t kMatchMax = 16;
constexpr size_t kTableMin = 256;

// That the next token is the same where `match` tokens before it are.
float ChanceOf(size_t match) {
  return 1.0F - 2.1F / static_cast<float>(std::min(match, kMatchMax) + 1);
}

}  // namespace

size_t PromptLookup::SlotOf(size_t end, size_t gram) const {
  uint64_t hash = gram;
  for (size_t i = end - gram; i < end; ++i) {
    hash = (hash ^ static_cast<uint32_t>(text_[i])) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash & (places_[0].size() - 1);
}

void PromptLookup::Learn(size_t place) {
  for (size_t gram = kGramMin; gram <= kGramMax && gram <= place; ++gram) {
    places_[gram - kGramMin][SlotOf(place, gram)] = static_cast<uint32_t>(place);
  }
}

void PromptLookup::Grow() {
  const size_t size = std::max(kTableMin, 2 * places_[0].size());
  for (Places& places : places_) places.assign(size, 0);
  for (size_t place = kGramMin; place < text_.size(); ++place) Learn(place);
}

void PromptLookup::Accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    text_.push_back(token);
    if (text_.size() > kLookupTokensMax) continue;
    if (2 * text_.size() > places_[0].size()) {
      Grow();
    } else if (text_.size() > kGramMin) {
      Learn(text_.size() - 1);
    }
  }
}

size_t PromptLookup::MatchAt(size_t place) const {
  size_t match = 0;
  while (match < kMatchMax && match < place &&
         text_[place - 1 - match] == text_[text_.size() - 1 - match]) {
    ++match;
  }
  return match;
}

std::vector<Draft> PromptLookup::Propose(size_t count) const {
  std::vector<Draft> drafts;
  for (size_t gram = kGramMax; gram >= kGramMin; --gram) {
    if (gram >= text_.size()) continue;
    const size_t place = places_[gram - kGramMin][SlotOf(text_.size(), gram)];
    if (place == 0) continue;
    const size_t match = MatchAt(place);
    if (match < gram) continue;
    // What repeats may run into its own continuation.
    for (size_t i = 0; i < count; ++i) {
      const size_t at = place + i;
      const int32_t token = at < text_.size() ? text_[at] : drafts[at - text_.size()].token;
      drafts.push_back({.token = token, .chance = ChanceOf(match + i)});
    }
    return drafts;
  }
  return drafts;
}

}  // namespace shardline
