#include "model/tokenizer/special_splitter.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/ascii.h"

namespace shardline {

SpecialSplitter::SpecialSplitter(const Vocabulary* vocabulary, bool with_control)
    : vocabulary_(vocabulary) {
  std::array<std::set<size_t>, 256> lengths;
  for (int32_t id = 0; id < vocabulary->size(); ++id) {
    const Vocabulary::Traits& traits = vocabulary->TraitsOf(id);
    if (!traits.is_special || (traits.is_control && !with_control)) continue;
    const std::string_view text = vocabulary->Text(id);
    tokens_.emplace(text, id);
    lengths[static_cast<uint8_t>(text[0])].insert(text.size());
  }
  for (size_t byte = 0; byte < lengths.size(); ++byte) {
    lengths_[byte].assign(lengths[byte].begin(), lengths[byte].end());
  }
}

int32_t SpecialSplitter::TokenAt(std::string_view text, size_t begin, size_t bytes) const {
  if (bytes > text.size() - begin) return -1;
  const auto found = tokens_.find(text.substr(begin, bytes));
  return found == tokens_.end() ? -1 : found->second;
}

std::vector<TextSegment> SpecialSplitter::Split(std::string_view text) const {
  if (text.empty()) return {};
  // Where any token stands at all, and the lengths to try; for most texts both stay empty.
  std::vector<size_t> candidates;
  std::set<size_t, std::greater<>> lengths;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::vector<size_t>& possible = lengths_[static_cast<uint8_t>(text[begin])];
    const bool any = std::any_of(possible.begin(), possible.end(),
                                 [&](size_t bytes) { return TokenAt(text, begin, bytes) >= 0; });
    if (!any) continue;
    candidates.push_back(begin);
    lengths.insert(possible.begin(), possible.end());
  }
  if (candidates.empty()) return {{.text = text}};

  // Longer tokens go first, so a taken stretch that overlaps a candidate covers one of its ends.
  std::vector<bool> taken(text.size());
  std::vector<Found> found;
  for (const size_t bytes : lengths) {
    for (const size_t begin : candidates) {
      if (taken[begin] || bytes > text.size() - begin || taken[begin + bytes - 1]) continue;
      const int32_t token = TokenAt(text, begin, bytes);
      if (token < 0) continue;
      size_t first = begin;
      size_t last = begin + bytes;
      const Vocabulary::Traits& traits = vocabulary_->TraitsOf(token);
      const auto is_free_space = [&](size_t at) {
        return !taken[at] && absl::ascii_isspace(static_cast<unsigned char>(text[at]));
      };
      while (traits.strips_spaces_before && first > 0 && is_free_space(first - 1)) --first;
      while (traits.strips_spaces_after && last < text.size() && is_free_space(last)) ++last;
      std::fill(taken.begin() + static_cast<ptrdiff_t>(first),
                taken.begin() + static_cast<ptrdiff_t>(last), true);
      found.push_back({begin, token});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.begin < b.begin; });

  std::vector<TextSegment> segments;
  size_t position = 0;
  const auto add_text_before = [&](size_t end) {
    while (position < end) {
      size_t stop = position;
      while (stop < end && !taken[stop]) ++stop;
      if (stop > position) segments.push_back({.text = text.substr(position, stop - position)});
      position = stop;
      while (position < end && taken[position]) ++position;
    }
  };
  for (const Found& one : found) {
    add_text_before(one.begin);
    segments.push_back({.token = one.token});
    position = one.begin + vocabulary_->Text(one.token).size();
  }
  add_text_before(text.size());
  return segments;
}

}  // namespace shardline
