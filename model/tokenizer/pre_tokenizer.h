#pragma once

// Cuts text into the words inside which byte-level BPE may merge.
//
// A pre-tokenizer has a name (`tokenizer.ggml.pre`) and one or more patterns; each pattern cuts
// every piece that the ones before it left, and what lies between matches is a piece as well.
// The patterns are facts about the models' own tokenizers. Immutable, any thread.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardline {

class PreTokenizer {
 public:
  // Empty is "default". An unknown name is an error that lists the known ones: a wrong guess
  // would give wrong ids silently.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Replaces `ends` by the end offsets of the pieces of `text`, ascending; the last is its size.
  // Fails only if the matcher runs out of memory; the text is never cut half.
  // REQUIRES: valid UTF-8.
  absl::Status Split(std::string_view text, std::vector<size_t>* ends) const;

  // True if a word that is a token as it stands is never merged from its parts.
  bool ignores_merges() const { return ignores_merges_; }
  // True if models of this kind start with BOS unless they say otherwise.
  bool adds_bos() const { return adds_bos_; }

 private:
  class Pattern;

  PreTokenizer();

  std::vector<std::unique_ptr<const Pattern>> patterns_;
  bool ignores_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace shardline
