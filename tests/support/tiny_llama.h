#pragma once

// A whole Llama-family model made of random numbers: small, deterministic, complete with a
// byte-level tokenizer, so that every program of Shardline can serve it.
//
//   const std::string path = MakeTinyLlama(FreshDirectory());
//   const std::string path = MakeTinyLlama(directory, {.layers = 6, .tied = false});

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/gguf_types.h"
#include "tests/support/gguf_writer.h"

namespace shardline::testing {

struct TinyLlamaOptions {
  std::string name = "tiny";           // Of the file, less ".gguf".
  std::string architecture = "llama";  // "qwen2" has biases, "qwen3" q and k norms, always.
  int32_t layers = 4;
  int32_t hidden = 64;  // A multiple of 32 for block formats, of 256 for the k-quants.
  int32_t q_heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 0;  // 0: hidden / q_heads. Else written as attention.key_length.
  int32_t ff = 128;      // As hidden.
  int32_t context = 512;
  int32_t vocab = 0;  // 0: the tiny vocabulary; else that, filled up with unused tokens.
  bool tied = true;
  bool attention_bias = false;
  float rope_base = 10'000.0f;
  bool rope_factors = false;  // With the tensor rope_freqs.weight, as Llama 3.1 has it.
  GgufTensorType weights = GgufTensorType::kF32;    // Matrices of the layers.
  GgufTensorType embedding = GgufTensorType::kF32;  // And of the lm_head, unless tied.
  std::map<std::string, GgufTensorType> types;      // By full name; overrides the two above.
  uint64_t seed = 1;
  uint32_t version = 3;
  int split_parts = 1;
};

// Tokens of the tiny vocabulary: special ones, then a token for every byte, then some merges.
inline constexpr int32_t kTinyEndOfText = 0;  // "<|endoftext|>"
inline constexpr int32_t kTinyBos = 1;        // "<|im_start|>"
inline constexpr int32_t kTinyEos = 2;        // "<|im_end|>"
inline constexpr int32_t kTinyFirstByte = 3;  // Byte b is token kTinyFirstByte + b.
int32_t TinyVocabSize();

// Writes the model into `directory`; gives its path (of part 1, if split).
std::string MakeTinyLlama(const std::string& directory, const TinyLlamaOptions& options = {});

// The model before it is written, for tests that then break it.
GgufWriter TinyLlama(const TinyLlamaOptions& options = {});

// `values` stored as `type`. For kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1: the values, rounded to
// nearest. For the others: random blocks with values of like size, as nothing here encodes them.
// REQUIRES: whole blocks.
std::string EncodeWeights(GgufTensorType type, const std::vector<float>& values, uint64_t seed);

}  // namespace shardline::testing
