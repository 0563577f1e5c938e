#pragma once

// What a model file says about its tokenizer, as plain data; Tokenizer::Create judges it.
// Field for field the GGUF keys `tokenizer.ggml.*`; an absent key is an empty vector or nullopt.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// The numbers are GGUF's (`tokenizer.ggml.token_type`).
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct TokenizerSpec {
  std::string type;        // `model`: "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE).
  std::string pre;         // `pre`: the pre-tokenizer of "gpt2"; empty means "default".
  std::string model_name;  // `general.name`; the Phi-3 family has rules of its own.

  std::vector<std::string> tokens;     // Text of each id; the index is the id.
  std::vector<TokenType> token_types;  // [tokens]; empty: all normal.
  std::vector<float> scores;           // [tokens]; "llama" only, the higher the earlier.
  std::vector<std::string> merges;     // "left right", the earlier the sooner; "gpt2" only.

  std::optional<int32_t> bos_id;  // "llama" without the keys: bos 1, eos 2, unknown 0.
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unknown_id;
  std::optional<int32_t> padding_id;
  std::optional<int32_t> eot_id;  // End of a turn.
  std::optional<int32_t> eom_id;  // End of a message.

  std::optional<bool> add_bos;           // Absent: as the tokenizer's kind has it.
  std::optional<bool> add_eos;           // Absent: false.
  std::optional<bool> add_space_prefix;  // "llama" only; absent: true.
};

}  // namespace shardline
