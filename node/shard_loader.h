#pragma once

// Turns a placement order into a shard that computes: the seam between the wiring and the weights.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "base/shard_cost.h"
#include "model/grammar/token_trie.h"
#include "node/exec/executor.h"

namespace shardline {

// What the coordinator orders.
struct ShardOrder {
  PlanEpoch plan_epoch;
  std::string model_name;  // File name in the node's own model directory, tried first.
  std::string model_path;  // Tried second.
  ModelId model_id;
  std::string manifest;  // Serialised; the digests that the weights must have.
  LayerRange layers;
  bool is_head = false;
  int32_t context_tokens_max = 0;
  int32_t kv_pages = 0;
  int32_t chunk_tokens_max = 0;

  friend bool operator==(const ShardOrder&, const ShardOrder&) = default;
};

// Whether both are the same shard in memory, if under another plan or file name: who holds the one
// need read nothing for the other.
inline bool SameShard(const ShardOrder& a, const ShardOrder& b) {
  return a.model_id == b.model_id && a.manifest == b.manifest && a.layers == b.layers &&
         a.is_head == b.is_head && a.context_tokens_max == b.context_tokens_max &&
         a.kv_pages == b.kv_pages && a.chunk_tokens_max == b.chunk_tokens_max;
}

struct LoadedShard {
  NumericsId numerics_id;
  int32_t layers_total = 0;  // Of the model.
  int32_t hidden_dim = 0;
  int32_t vocab_size = 0;
  int32_t context_tokens_max = 0;
  uint64_t memory_bytes = 0;  // Weights and KV.
  uint64_t tensor_bytes = 0;  // Of the model file: what progress counted up to.
  ShardCost cost;             // Of its jobs, measured.
  std::shared_ptr<DeviceExecutor> executor;
  std::shared_ptr<const TokenTrie> vocabulary;  // Of a head; null if its file has none.
};

class ShardLoader {
 public:
  // Called now and then on the loading thread; false asks to stop.
  using Progress = std::function<bool(uint64_t bytes_done, uint64_t bytes_total)>;

  virtual ~ShardLoader() = default;

  // Blocks for as long as the disk takes. Fails with kIncompatibleRecipe, naming both digests,
  // when the file found is not the model that was ordered; with kOverloaded, in numbers, when the
  // shard does not fit into memory; with kCancelled when `progress` said so.
  virtual absl::StatusOr<LoadedShard> Load(const ShardOrder& order, const Progress& progress) = 0;
};

}  // namespace shardline
