#pragma once

// Byte-level BPE: words from the pre-tokenizer, each merged from bytes by ranked pairs.
//
// The text passes MakeLenient first, so invalid UTF-8 becomes U+FFFD. A byte for which the
// vocabulary has no token is dropped, as everywhere with this kind of vocabulary.
// A word of n bytes costs O(n log n).

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/text_encoder.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline {

class ByteLevelEncoder : public TextEncoder {
 public:
  // `merges` as in TokenizerSpec; fails on one without a space. The vocabulary must outlive it.
  static absl::StatusOr<std::unique_ptr<ByteLevelEncoder>> Create(
      const Vocabulary* vocabulary, PreTokenizer pre_tokenizer,
      const std::vector<std::string>& merges);

  absl::Status Append(std::string_view text, bool opens, std::vector<int32_t>* ids) const override;

 private:
  // A symbol is a token id, or a number past them for a text that merges but is no token.
  using SymbolId = int32_t;
  struct Merge {
    int32_t rank;
    SymbolId result;
  };
  struct Symbol;
  struct Candidate;

  ByteLevelEncoder(const Vocabulary* vocabulary, PreTokenizer pre_tokenizer);

  SymbolId Intern(const std::string& text);
  void AppendWord(std::string_view word, std::vector<Symbol>* symbols,
                  std::vector<Candidate>* queue, std::vector<int32_t>* ids) const;
  void AppendSymbol(SymbolId symbol, std::vector<int32_t>* ids) const;

  const Vocabulary* const vocabulary_;
  PreTokenizer pre_tokenizer_;
  std::array<SymbolId, 256> byte_symbols_ = {};
  absl::flat_hash_map<uint64_t, Merge> merges_;               // Left symbol << 32 | right symbol.
  absl::flat_hash_map<std::string, SymbolId> extra_symbols_;  // Texts that are no tokens.
  std::vector<std::vector<int32_t>> extra_ids_;  // What they come out as, by symbol - tokens.
};

}  // namespace shardline
