#pragma once

// The seam between the two kinds of tokenizers: how a stretch without special tokens becomes ids.

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace shardline {

// Immutable, any thread.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of `text` to `ids`. `opens` is true at the start of the input and behind a
  // special token, where SentencePiece may put a space in front.
  virtual absl::Status Append(std::string_view text, bool opens,
                              std::vector<int32_t>* ids) const = 0;
};

}  // namespace shardline
