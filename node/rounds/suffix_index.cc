#include "node/rounds/suffix_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shardline {
namespace {

// Of the last `depth` tokens, the last one first: a longer context's hash begins with a shorter's.
uint64_t Extend(uint64_t hash, int32_t token) {
  hash = (hash + 1 + static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

}  // namespace

SuffixIndex::SuffixIndex(size_t contexts_max) : contexts_max_(contexts_max) {
  SL_CHECK(contexts_max > 0);
}

void SuffixIndex::Accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    uint64_t hash = 0;
    for (size_t depth = 1; depth <= tail_.size(); ++depth) {
      hash = Extend(hash, tail_[tail_.size() - depth]);
      if (depth < kDepthMin) continue;
      if (contexts_.size() >= contexts_max_ && !contexts_.contains(hash)) Age();
      Add(contexts_[hash], token);
    }
    if (tail_.size() == kDepthMax) tail_.erase(tail_.begin());
    tail_.push_back(token);
  }
}

void SuffixIndex::Add(Context& context, int32_t token) {
  ++context.total;
  auto& [first, second] = context.followers;
  if (first.count == 0 || first.token == token) {
    first = {.token = token, .count = first.count + 1};
    return;
  }
  second = {.token = token, .count = second.token == token ? second.count + 1 : 1};
  if (second.count > first.count) std::swap(first, second);
}

void SuffixIndex::Age() {
  while (contexts_.size() >= contexts_max_) {
    for (auto& [hash, context] : contexts_) {
      context.total /= 2;
      for (Follower& follower : context.followers) follower.count /= 2;
    }
    absl::erase_if(contexts_, [](const auto& entry) { return entry.second.total == 0; });
  }
}

Draft SuffixIndex::BestAfter(std::span<const int32_t> text) const {
  Draft best;
  bool is_often = false;
  uint64_t hash = 0;
  for (size_t depth = 1; depth <= std::min(kDepthMax, text.size()); ++depth) {
    hash = Extend(hash, text[text.size() - depth]);
    if (depth < kDepthMin) continue;
    const auto it = contexts_.find(hash);
    if (it == contexts_.end()) break;  // Nor is any longer one.
    const Context& context = it->second;
    if (context.followers[0].count == 0 || (is_often && context.total < 2)) continue;
    is_often = context.total >= 2;
    best = {.token = context.followers[0].token,
            .chance = static_cast<float>(context.followers[0].count) /
                      static_cast<float>(context.total + 1)};
  }
  return best;
}

std::vector<Draft> SuffixIndex::Propose(size_t count) const {
  std::vector<Draft> drafts;
  std::vector<int32_t> text = tail_;
  while (drafts.size() < count) {
    const Draft draft = BestAfter(text);
    if (draft.token < 0) break;
    drafts.push_back(draft);
    text.push_back(draft.token);
  }
  return drafts;
}

}  // namespace shardline
