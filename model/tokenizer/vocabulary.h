#pragma once

// The tokens of a model: their texts, what kind each is, and what bytes it stands for.
//
// Immutable after Create, any thread. Knows nothing about how text becomes tokens.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer_spec.h"

namespace shardline {

// How the text of an ordinary token spells bytes.
enum class TokenSpelling {
  kByteLevel,      // Each byte is a printable character, as GPT-2 maps them.
  kSentencePiece,  // UTF-8 with U+2581 for a space; <0x41> tokens are bytes.
};

class Vocabulary {
 public:
  struct Traits {
    bool is_control = false;  // Control or unknown: shown on request only.
    bool is_special = false;  // Control, unknown or user-defined: cut out of text first.
    bool is_end_of_generation = false;
    bool strips_spaces_before = false;  // Encoding drops white space on this side of it.
    bool strips_spaces_after = false;
  };

  // Takes tokens, types and the like out of `spec`. Fails on no tokens, on two tokens with one
  // text and on token_types of another length.
  static absl::StatusOr<std::unique_ptr<const Vocabulary>> Create(TokenizerSpec* spec,
                                                                  TokenSpelling spelling);

  // The same by `spec->type`, whose other ids are filled in as that type has them. Fails on an
  // unknown one as well.
  static absl::StatusOr<std::unique_ptr<const Vocabulary>> CreateByType(TokenizerSpec* spec);

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  bool Has(int32_t id) const { return id >= 0 && id < size(); }

  // The id of the token with this text; -1 if there is none.
  int32_t Find(std::string_view text) const;

  // The queries below: REQUIRES Has(id).
  std::string_view Text(int32_t id) const { return texts_[id]; }   // As in the file.
  std::string_view Bytes(int32_t id) const { return bytes_[id]; }  // What it adds to the output.
  const Traits& TraitsOf(int32_t id) const { return traits_[id]; }

  // Length of the longest text.
  size_t longest_text_bytes() const { return longest_text_bytes_; }

 private:
  Vocabulary() = default;
  void SetTraits(const TokenizerSpec& spec);
  void SetBytes(const TokenizerSpec& spec, TokenSpelling spelling);

  std::vector<std::string> texts_;
  std::vector<std::string> bytes_;
  std::vector<Traits> traits_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;  // Keys view texts_.
  size_t longest_text_bytes_ = 0;
};

// The GPT-2 spelling of a byte: itself if it is a visible Latin-1 character, else the next unused
// one from U+0100 on.
const std::string& ByteLevelSpelling(uint8_t byte);

}  // namespace shardline
