#pragma once

// Text to token ids and back, exactly as the model was trained with.
//
// Two kinds, by `TokenizerSpec::type`: "gpt2" is byte-level BPE (byte_level_encoder.h), "llama" is
// SentencePiece BPE (sentencepiece_encoder.h). Ids equal llama.cpp's, which the golden tests hold
// for every pre-tokenizer. Any bytes are accepted. Byte-level BPE turns invalid UTF-8 into U+FFFD
// (utf8.h has the rules; values over U+10FFFF, which llama.cpp refuses with an exception, too);
// SentencePiece keeps invalid bytes through its byte tokens.
// Immutable, so any thread; the cost of n bytes is O(n log n).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/special_splitter.h"
#include "model/tokenizer/text_encoder.h"
#include "model/tokenizer/tokenizer_spec.h"
#include "model/tokenizer/vocabulary.h"

namespace shardline {

struct EncodeOptions {
  bool add_special = false;    // Put BOS in front and EOS behind, as the model wants it.
  bool parse_special = false;  // Control tokens spelled in the text count; else they are text.
};

class Tokenizer {
 public:
  // Longer input is refused: offsets are 32 bits wide and a byte may become three.
  static constexpr size_t kTextBytesMax = size_t{1} << 29;

  // Fails, naming what is wrong, on an unknown type or pre-tokenizer (listing the known ones),
  // repeated tokens, lists of unequal length, ids outside the vocabulary or malformed merges.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // User-defined tokens in the text always count, control tokens only with parse_special.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const;

  // The text of a whole sequence; fails on an id outside the vocabulary. Control tokens show as
  // their text or not at all. The space that SentencePiece puts in front is taken off again.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool show_special) const;

  // The bytes one token adds to what is already there, for streaming; perhaps half a character.
  // A control token gives its text: ask IsControl whether to show it. REQUIRES: id in range.
  std::string_view TokenBytes(int32_t id) const;

  // False for ids outside the vocabulary.
  bool IsControl(int32_t id) const;
  bool IsEndOfGeneration(int32_t id) const;

  int32_t vocab_size() const { return vocabulary_->size(); }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }

 private:
  explicit Tokenizer(std::unique_ptr<const Vocabulary> vocabulary);

  const std::unique_ptr<const Vocabulary> vocabulary_;
  const SpecialSplitter all_special_;
  const SpecialSplitter user_defined_;
  std::unique_ptr<const TextEncoder> encoder_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  bool adds_space_prefix_ = false;
};

}  // namespace shardline
