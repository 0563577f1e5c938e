#pragma once

// Ends a text before the first stop text in it, and lets nothing out that may become one.
//
// The first to be complete ends the text, whatever the cut into pieces; of those that are complete
// at the same byte, the longest. Pieces and stop texts are valid UTF-8, so no cut is inside a
// character. The cost is that of the text, times the number of stop texts.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

class StopHold {
 public:
  // None is empty. With `include`, the stop text itself is let out.
  StopHold(std::vector<std::string> stop_texts, bool include);

  // What may go out now. Empty once stopped.
  std::string Push(std::string_view piece);
  // What is left when the text ends without a stop text.
  std::string Flush();

  bool stopped() const { return stopped_.has_value(); }
  // Which one ended the text; REQUIRES: stopped().
  const std::string& stop_text() const { return matchers_[*stopped_].text; }

 private:
  // Knuth, Morris and Pratt: how much of the text is at the end of what was seen.
  struct Matcher {
    explicit Matcher(std::string stop_text);
    void Feed(char byte);

    std::string text;
    std::vector<size_t> fallback;
    size_t matched = 0;
  };

  std::vector<Matcher> matchers_;
  const bool include_;
  std::string held_;  // Shorter than the longest stop text.
  std::optional<size_t> stopped_;
};

}  // namespace shardline
