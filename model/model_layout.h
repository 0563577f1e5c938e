#pragma once

// Which tensors a shard needs, whether a file has them, and what they cost.
//
// The route is a ring: the head stage owns the embedding, the final norm and the lm_head, so a
// tied embedding is stored once, wherever the last layer is.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/layer_range.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"

namespace shardline {

// What one node holds of a model.
struct ShardContents {
  LayerRange layers;
  bool embedding = false;  // The token embedding.
  bool head = false;       // Final norm and lm_head; with a tied head the embedding matrix too.

  friend bool operator==(const ShardContents&, const ShardContents&) = default;
};

// All of the model, as one process would hold it.
ShardContents WholeModel(const HyperParameters& hp);

// What a tensor is multiplied as, which decides the types it may be stored in.
enum class TensorRole {
  kVector,  // Norms, biases, rope factors: f32.
  kMatrix,  // Any weight type.
};

struct TensorNeed {
  std::string name;
  TensorShape shape;  // As in the file: row length first.
  TensorRole role = TensorRole::kMatrix;
  LayerRange layers;  // The layers that need it; empty: the embedding or the head does.
};

// Every tensor of the shard, each once: embedding, layers in order, head.
// REQUIRES: contents.layers within [0, hp.layer_count).
std::vector<TensorNeed> RequiredTensors(const HyperParameters& hp, const ShardContents& contents);

// kInvalidRequest: "<file>: missing tensor X, needed by layers a-b".
absl::Status MissingTensor(const std::string& file, const std::string& tensor, LayerRange layers);

// kInvalidRequest, naming file, tensor and who needs it, at the first tensor of `contents` that is
// missing or has another shape or type than hp implies.
absl::Status CheckTensors(const GgufFile& file, const HyperParameters& hp,
                          const ShardContents& contents);

// The same for the whole model; also refuses tensors that this build would not compute with,
// since leaving one out gives another model.
absl::Status CheckTensors(const GgufFile& file, const HyperParameters& hp);

// Weight bytes as in the file, and KV bytes; what placement divides.
struct ModelCosts {
  std::vector<uint64_t> layer_bytes;  // By layer.
  uint64_t embedding_bytes = 0;
  uint64_t final_norm_bytes = 0;
  uint64_t lm_head_bytes = 0;             // 0 if tied: embedding_bytes has it.
  uint64_t shared_bytes = 0;              // On every shard with layers: rope factors.
  uint64_t kv_bytes_per_token_layer = 0;  // Keys and values in f16.
};

// As CheckTensors for the whole model, whose costs these are.
absl::StatusOr<ModelCosts> CostsOf(const GgufFile& file, const HyperParameters& hp);

// Weight bytes of one shard. REQUIRES: contents.layers within [0, layer_bytes.size()).
uint64_t ShardBytes(const ModelCosts& costs, const ShardContents& contents);

// KV bytes of one token on one shard, f16.
uint64_t ShardKvBytesPerToken(const ModelCosts& costs, const ShardContents& contents);

}  // namespace shardline
