#include "node/sampling/text_finder.h"

#include <utility>

#include "base/check.h"

namespace shardline {

TextFinder::TextFinder(std::string text) : text_(std::move(text)), fallbacks_(text_.size() + 1) {
  SL_CHECK(!text_.empty());
  for (size_t i = 1, matched = 0; i < text_.size(); ++i) {
    while (matched > 0 && text_[i] != text_[matched]) matched = fallbacks_[matched];
    if (text_[i] == text_[matched]) ++matched;
    fallbacks_[i + 1] = matched;
  }
}

bool TextFinder::Read(std::string_view bytes) {
  for (const char byte : bytes) {
    if (is_found_) break;
    while (matched_ > 0 && byte != text_[matched_]) matched_ = fallbacks_[matched_];
    if (byte == text_[matched_]) ++matched_;
    is_found_ = matched_ == text_.size();
  }
  return is_found_;
}

}  // namespace shardline
