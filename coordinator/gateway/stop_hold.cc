#include "coordinator/gateway/stop_hold.h"

#include <algorithm>
#include <utility>

namespace shardline {

StopHold::StopHold(std::vector<std::string> stop_texts, bool include) : include_(include) {
  for (std::string& text : stop_texts) matchers_.emplace_back(std::move(text));
}

StopHold::Matcher::Matcher(std::string stop_text)
    : text(std::move(stop_text)), fallback(text.size(), 0) {
  for (size_t i = 1; i < text.size(); ++i) {
    size_t length = fallback[i - 1];
    while (length > 0 && text[length] != text[i]) length = fallback[length - 1];
    fallback[i] = length + (text[length] == text[i] ? 1 : 0);
  }
}

void StopHold::Matcher::Feed(char byte) {
  while (matched > 0 && text[matched] != byte) matched = fallback[matched - 1];
  if (text[matched] == byte) ++matched;
}

std::string StopHold::Push(std::string_view piece) {
  if (stopped()) return "";
  for (size_t i = 0; i < piece.size(); ++i) {
    for (size_t k = 0; k < matchers_.size(); ++k) {
      Matcher& matcher = matchers_[k];
      matcher.Feed(piece[i]);
      const bool is_longer = !stopped_ || matcher.text.size() > matchers_[*stopped_].text.size();
      if (matcher.matched == matcher.text.size() && is_longer) stopped_ = k;
    }
    if (!stopped_) continue;
    std::string out = std::exchange(held_, "");
    out.append(piece.substr(0, i + 1));
    if (!include_) out.resize(out.size() - stop_text().size());
    return out;
  }
  size_t kept = 0;
  for (const Matcher& matcher : matchers_) kept = std::max(kept, matcher.matched);
  held_.append(piece);
  std::string out = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return out;
}

std::string StopHold::Flush() {
  if (stopped()) return "";
  return std::exchange(held_, "");
}

}  // namespace shardline
