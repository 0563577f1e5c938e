#pragma once

// Runs a shard's layers over rows of several sessions, and at the head turns tokens into hidden
// state and hidden state into logits. Llama family: llama, mistral, qwen2, qwen3.
//
// The one place that knows the order of operators in a layer. It calls through a KernelTable and
// keeps the residual in f32, the dtype of the wire, so that one shard and many do the same
// arithmetic. How rows are cut into calls moves no bit (kernels/NUMERICS.md).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "kernels/kernel_table.h"
#include "node/exec/kv_store.h"
#include "node/exec/shard_weights.h"

namespace shardline {

struct LlamaForwardOptions {
  int32_t rows_max = 256;          // Rows computed at once; longer calls are cut.
  int32_t logits_rows_max = 64;    // The same for Finish.
  int32_t context_tokens_max = 0;  // Positions that can be computed; 0: the model's context.
};

// All memory is taken by Create. One thread at a time.
class LlamaForward {
 public:
  // Fails with kIncompatibleRecipe for a shape that the kernels do not compute.
  // `weights`, `kv` (of the shard's layers) and `kernels` are not owned and outlive the result.
  static absl::StatusOr<std::unique_ptr<LlamaForward>> Create(const ShardWeights* weights,
                                                              const KvStore* kv,
                                                              const KernelTable* kernels,
                                                              DeviceStream stream,
                                                              const LlamaForwardOptions& options);

  // hidden [tokens, hidden_dim]: the tokens' embeddings. REQUIRES: the shard has the embedding.
  // kInvalidRequest for a token outside the vocabulary.
  absl::Status Embed(std::span<const int32_t> tokens, float* hidden);

  // Runs the shard's layers over hidden [rows, hidden_dim] in place. The slices tile the rows in
  // order; their keys and values are appended to their pages, beyond the committed length, so a
  // failed call is as if it had not been. Out of range when a position is beyond the context.
  absl::Status RunLayers(std::span<const SequenceSlice> slices, float* hidden);

  // logits [rows.size(), vocab] of the chosen rows of hidden [*, hidden_dim].
  // REQUIRES: the shard has the head.
  absl::Status Finish(const float* hidden, std::span<const int32_t> rows, float* logits);

  // While `*stop` is true, RunLayers fails with kCancelled between two layers. Not owned.
  void StopOn(const std::atomic<bool>* stop) { stop_ = stop; }

  const ShardWeights& weights() const { return weights_; }
  const KvStore& kv() const { return kv_; }
  const KernelTable& kernels() const { return kernels_; }
  DeviceStream stream() const { return stream_; }
  int32_t context_tokens_max() const { return static_cast<int32_t>(rope_.positions_count()); }

 private:
  LlamaForward(const ShardWeights* weights, const KvStore* kv, const KernelTable* kernels,
               DeviceStream stream, const LlamaForwardOptions& options, RopeTable rope);

  // At most rows_max rows; slices' first rows count from `hidden`.
  absl::Status RunBatch(std::span<const SequenceSlice> slices, int32_t rows, float* hidden);
  absl::Status Attend(int32_t layer, std::span<const SequenceSlice> slices, int32_t rows,
                      float* hidden);
  // Optional per-head norm, then rotation, of x [rows, heads, head_dim].
  absl::Status PlaceHeads(float* x, int32_t heads, const std::vector<float>& norm, int32_t rows);
  absl::Status FeedForward(int32_t layer, int32_t rows, float* hidden);
  absl::Status Normalize(const float* x, const std::vector<float>& weight, int32_t rows, float* y);
  absl::Status Multiply(const float* x, int64_t x_stride, int32_t rows,
                        std::span<const MatmulPart> parts);
  size_t MatmulBytes() const;

  const ShardWeights& weights_;
  const KvStore& kv_;
  const KernelTable& kernels_;
  const DeviceStream stream_;
  const LlamaForwardOptions options_;
  const RopeTable rope_;
  const float attention_scale_;

  // Scratch, used within a call.
  std::vector<float> normed_;       // [rows_max, hidden_dim]
  std::vector<float> q_;            // [rows_max, q_dim]
  std::vector<float> k_;            // [rows_max, kv_dim]
  std::vector<float> v_;            // [rows_max, kv_dim]
  std::vector<float> attended_;     // [rows_max, q_dim]
  std::vector<float> gate_;         // [rows_max, ff_dim]
  std::vector<float> up_;           // [rows_max, ff_dim]
  std::vector<float> chosen_;       // [logits_rows_max, hidden_dim]
  std::vector<int32_t> positions_;  // [rows_max]
  std::vector<SequenceSlice> cut_;  // Slices of one batch.
  std::vector<float> attention_workspace_;
  std::shared_ptr<Buffer> matmul_scratch_;

  const std::atomic<bool>* stop_ = nullptr;
};

}  // namespace shardline
