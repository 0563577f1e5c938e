#pragma once

// SentencePiece BPE: the whole stretch is merged from characters, the best-scored token first.
//
// Spaces are spelled U+2581. Characters come by the length their first byte claims, and what is
// no token comes out as byte tokens, one a byte. So invalid UTF-8 is kept as it is, but for half
// a character right before a space: it claims bytes of the U+2581, which then stays one.
// Where the vocabulary has no bytes, the unknown token takes their place. A stretch of n bytes
// costs O(n log n).

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/text_encoder.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline {

class SentencePieceEncoder : public TextEncoder {
 public:
  // scores: [tokens], one a token and no NaN. `unknown_id` may be -1 if every byte has a token.
  // The vocabulary must outlive it.
  static absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> Create(const Vocabulary* vocabulary,
                                                                      std::vector<float> scores,
                                                                      int32_t unknown_id,
                                                                      bool adds_space_prefix);

  absl::Status Append(std::string_view text, bool opens, std::vector<int32_t>* ids) const override;

 private:
  SentencePieceEncoder(const Vocabulary* vocabulary, std::vector<float> scores,
                       bool adds_space_prefix);

  const Vocabulary* const vocabulary_;
  const std::vector<float> scores_;
  const bool adds_space_prefix_;
  std::array<int32_t, 256> byte_ids_ = {};
};

}  // namespace shardline
