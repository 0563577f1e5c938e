#pragma once

// The weights of one shard as its kernels read them, packed once from a model file.
//
// Only the shard's own tensors are touched, one after the other: the file's pages are asked for
// ahead and given back when a tensor is packed, so that loading needs little more memory than the
// result. A tied embedding is packed once and serves as embedding and as lm_head.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/device_stream.h"
#include "kernels/packed_weight.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"
#include "model/model_layout.h"

namespace shardline {

enum class WeightPolicy : uint8_t {
  kAsStored,         // What ships: the file's own format.
  kDequantizeToF32,  // Tests: exact values of the file, so that only rounding is left to differ.
};

struct LayerWeights {
  std::vector<float> attn_norm;  // [hidden_dim]
  PackedWeight q;                // [q_dim, hidden_dim]
  PackedWeight k;                // [kv_dim, hidden_dim]
  PackedWeight v;                // [kv_dim, hidden_dim]
  std::vector<float> q_bias;     // [q_dim], or empty: the model has none.
  std::vector<float> k_bias;     // [kv_dim], or empty.
  std::vector<float> v_bias;     // [kv_dim], or empty.
  std::vector<float> q_norm;     // [head_dim], or empty.
  std::vector<float> k_norm;     // [head_dim], or empty.
  PackedWeight attn_out;         // [hidden_dim, q_dim]
  std::vector<float> ffn_norm;   // [hidden_dim]
  PackedWeight gate;             // [ff_dim, hidden_dim]
  PackedWeight up;               // [ff_dim, hidden_dim]
  PackedWeight down;             // [hidden_dim, ff_dim]
};

// Immutable once loaded; any thread.
struct ShardWeights {
  HyperParameters hp;
  ShardContents contents;
  std::vector<LayerWeights> layers;  // [0] is contents.layers.begin.
  std::vector<float> rope_divisors;  // [rope dims / 2], or empty.
  PackedWeight embedding;            // [vocab, hidden_dim] if contents has it, or a tied head.
  std::vector<float> final_norm;     // [hidden_dim] at the head.
  PackedWeight untied_lm_head;       // [vocab, hidden_dim] at the head, unless tied.

  const PackedWeight& lm_head() const { return hp.tied_head ? embedding : untied_lm_head; }

  // Bytes of all packed matrices: what stays resident.
  int64_t packed_bytes() const;
};

// Bytes of the file read so far, and of the shard's tensors in all. False asks to stop.
using LoadProgress = absl::FunctionRef<bool(uint64_t done_bytes, uint64_t total_bytes)>;

// Blocks for as long as the disk and packing take; `progress` is called on this thread, at the
// start and after each tensor. Fails with kInvalidRequest, naming file, tensor and layers, when
// the file lacks one or was rewritten under us, and with kCancelled when `progress` says so.
absl::StatusOr<ShardWeights> LoadShardWeights(const GgufFile& file, const HyperParameters& hp,
                                              const ShardContents& contents, WeightPolicy policy,
                                              DeviceStream stream, LoadProgress progress);

}  // namespace shardline
