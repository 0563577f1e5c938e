#pragma once

// What a model file says about the shape and the arithmetic of a Llama-family model.
//
// Architectures: llama (Mistral files say llama too), qwen2 and qwen3, as GGUF names them. What
// would change the arithmetic and is not implemented is refused, never ignored.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/gguf_file.h"

namespace shardline {

enum class Architecture { kLlama, kQwen2, kQwen3 };

// "llama", as in general.architecture.
std::string_view ArchitectureName(Architecture architecture);

// Which elements of a head rotate together at frequency i of dimension_count / 2.
enum class RopePairing {
  kInterleaved,  // 2i and 2i + 1: llama files, whose q and k rows are stored permuted for it.
  kHalfSplit,    // i and i + dimension_count / 2: qwen2, qwen3.
};

enum class RopeScaling {
  kNone,
  kLinear,   // Positions are divided by `factor`.
  kYarn,     // YaRN, arXiv 2309.00071.
  kFactors,  // Frequency i is divided by element i of the tensor rope_freqs.weight (Llama 3.1).
};

struct RopeParameters {
  float base = 10'000.0f;
  int32_t dimension_count = 0;  // Leading elements of each head that rotate; even.
  RopePairing pairing = RopePairing::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;            // kLinear, kYarn.
  int32_t original_context = 0;   // kYarn: the context length before it was stretched.
  float attention_factor = 1.0f;  // kYarn: multiplies the magnitude that YaRN derives from factor.
  float beta_fast = 32.0f;        // kYarn: rotations over original_context where the ramp begins
  float beta_slow = 1.0f;         // and ends.

  friend bool operator==(const RopeParameters&, const RopeParameters&) = default;
};

// Limits of a model that is believed at all.
inline constexpr int32_t kLayersMax = 1024;
inline constexpr int32_t kHiddenDimMax = 1 << 17;
inline constexpr int32_t kFfDimMax = 1 << 20;
inline constexpr int32_t kHeadsMax = 1024;
inline constexpr int32_t kHeadDimMax = 1024;
inline constexpr int32_t kVocabMax = 1 << 22;
inline constexpr int32_t kContextMax = 1 << 28;

struct HyperParameters {
  Architecture architecture = Architecture::kLlama;
  int32_t layer_count = 0;
  int32_t hidden_dim = 0;
  int32_t ff_dim = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // Divides q_heads.
  int32_t head_dim = 0;  // Even; of queries, keys and values alike.
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  float rms_epsilon = 0.0f;
  RopeParameters rope;
  bool tied_head = false;       // lm_head is the embedding matrix; the file has no output.weight.
  bool attention_bias = false;  // q, k and v have a bias.
  bool qk_norm = false;         // q and k are RMS-normalised per head, before rope.

  int32_t q_dim() const { return q_heads * head_dim; }
  int32_t kv_dim() const { return kv_heads * head_dim; }

  // kInvalidRequest, naming file and key, if something is missing, inconsistent or not supported.
  // Looks at which tensors exist but not at their shapes: that is CheckTensors.
  static absl::StatusOr<HyperParameters> FromGguf(const GgufFile& file);

  friend bool operator==(const HyperParameters&, const HyperParameters&) = default;
};

}  // namespace shardline
