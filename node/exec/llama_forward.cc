#include "node/exec/llama_forward.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

// Decode rows whose splits may run side by side.
constexpr int64_t kWorkspaceRows = 4;

RopeSpec SpecOf(const ShardWeights& weights) {
  const RopeParameters& rope = weights.hp.rope;
  RopeSpec spec{.rope_dims = rope.dimension_count,
                .base = rope.base,
                .factor = rope.factor,
                .original_context_tokens = rope.original_context,
                .yarn_beta_fast = rope.beta_fast,
                .yarn_beta_slow = rope.beta_slow,
                .yarn_attention_factor = rope.attention_factor,
                .frequency_divisors = weights.rope_divisors};
  if (rope.scaling == RopeScaling::kLinear) spec.stretch = RopeStretch::kLinear;
  if (rope.scaling == RopeScaling::kYarn) spec.stretch = RopeStretch::kYarn;
  return spec;
}

RopePairs PairsOf(RopePairing pairing) {
  return pairing == RopePairing::kInterleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit;
}

absl::Status CheckShape(const HyperParameters& hp) {
  if (hp.head_dim % 16 != 0 || hp.head_dim > kAttentionHeadDimMax) {
    return MakeFailure(FailureKind::kIncompatibleRecipe,
                       absl::StrCat("heads of ", hp.head_dim, " elements: these kernels take ",
                                    "multiples of 16 up to ", kAttentionHeadDimMax));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaForward>> LlamaForward::Create(
    const ShardWeights* weights, const KvStore* kv, const KernelTable* kernels, DeviceStream stream,
    const LlamaForwardOptions& options) {
  SL_CHECK(options.rows_max > 0);
  SL_CHECK(options.logits_rows_max > 0);
  SL_RETURN_IF_ERROR(CheckShape(weights->hp));
  const int32_t positions =
      options.context_tokens_max > 0 ? options.context_tokens_max : weights->hp.context_length;
  SL_ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Build(SpecOf(*weights), positions));
  return absl::WrapUnique(new LlamaForward(weights, kv, kernels, stream, options, std::move(rope)));
}

LlamaForward::LlamaForward(const ShardWeights* weights, const KvStore* kv,
                           const KernelTable* kernels, DeviceStream stream,
                           const LlamaForwardOptions& options, RopeTable rope)
    : weights_(*weights),
      kv_(*kv),
      kernels_(*kernels),
      stream_(stream),
      options_(options),
      rope_(std::move(rope)),
      attention_scale_(1.0f / std::sqrt(static_cast<float>(weights->hp.head_dim))) {
  const HyperParameters& hp = weights_.hp;
  const size_t rows = static_cast<size_t>(options.rows_max);
  normed_.resize(std::max(rows, static_cast<size_t>(options.logits_rows_max)) * hp.hidden_dim);
  q_.resize(rows * hp.q_dim());
  k_.resize(rows * hp.kv_dim());
  v_.resize(rows * hp.kv_dim());
  attended_.resize(rows * hp.q_dim());
  gate_.resize(rows * hp.ff_dim);
  up_.resize(rows * hp.ff_dim);
  if (weights_.contents.head) {
    chosen_.resize(static_cast<size_t>(options.logits_rows_max) * hp.hidden_dim);
  }
  positions_.resize(rows);
  cut_.reserve(rows);
  attention_workspace_.resize(static_cast<size_t>(
      AttentionWorkspaceFloats(kWorkspaceRows, hp.q_heads, hp.head_dim, rope_.positions_count())));
  matmul_scratch_ = Buffer::Allocate(MatmulBytes());
}

size_t LlamaForward::MatmulBytes() const {
  const auto bytes = [](const PackedWeight& weight, int32_t rows) {
    const MatmulPart part{.weight = &weight};
    return MatmulScratchBytes(MatmulArgs{.rows = rows, .parts = {&part, 1}});
  };
  size_t most = 0;
  for (const LayerWeights& layer : weights_.layers) {
    for (const PackedWeight* weight :
         {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
      most = std::max(most, bytes(*weight, options_.rows_max));
    }
    const MatmulPart qkv[] = {{.weight = &layer.q}, {.weight = &layer.k}, {.weight = &layer.v}};
    const MatmulPart ffn[] = {{.weight = &layer.gate}, {.weight = &layer.up}};
    most = std::max(most, MatmulScratchBytes({.rows = options_.rows_max, .parts = qkv}));
    most = std::max(most, MatmulScratchBytes({.rows = options_.rows_max, .parts = ffn}));
  }
  if (weights_.contents.head) {
    most = std::max(most, bytes(weights_.lm_head(), options_.logits_rows_max));
  }
  return most;
}

absl::Status LlamaForward::Embed(std::span<const int32_t> tokens, float* hidden) {
  SL_CHECK(weights_.contents.embedding);
  return kernels_.embedding(EmbeddingArgs{.tokens = tokens.data(),
                                          .table = &weights_.embedding,
                                          .hidden = hidden,
                                          .rows = static_cast<int64_t>(tokens.size()),
                                          .hidden_stride = weights_.hp.hidden_dim},
                            stream_);
}

absl::Status LlamaForward::RunLayers(std::span<const SequenceSlice> slices, float* hidden) {
  // Positions are checked before anything is written.
  for (const SequenceSlice& slice : slices) {
    if (slice.position < 0 || slice.row_count > rope_.positions_count() - slice.position) {
      return absl::OutOfRangeError(absl::StrCat(
          "positions ", slice.position, " to ", int64_t{slice.position} + slice.row_count,
          " exceed the context of ", rope_.positions_count(), " tokens"));
    }
  }
  int32_t batch_begin = 0;
  int32_t rows = 0;
  cut_.clear();
  for (const SequenceSlice& slice : slices) {
    SL_CHECK(slice.first_row == batch_begin + rows, "slices must tile the rows");
    for (int32_t done = 0; done < slice.row_count;) {
      const int32_t count = std::min(slice.row_count - done, options_.rows_max - rows);
      cut_.push_back({.first_row = rows,
                      .row_count = count,
                      .position = slice.position + done,
                      .pages = slice.pages,
                      .kept_rows = std::clamp(slice.kept_rows - done, 0, count)});
      rows += count;
      done += count;
      if (rows < options_.rows_max) continue;
      SL_RETURN_IF_ERROR(
          RunBatch(cut_, rows, hidden + int64_t{batch_begin} * weights_.hp.hidden_dim));
      batch_begin += rows;
      rows = 0;
      cut_.clear();
    }
  }
  if (rows == 0) return absl::OkStatus();
  return RunBatch(cut_, rows, hidden + int64_t{batch_begin} * weights_.hp.hidden_dim);
}

absl::Status LlamaForward::RunBatch(std::span<const SequenceSlice> slices, int32_t rows,
                                    float* hidden) {
  for (const SequenceSlice& slice : slices) {
    for (int32_t i = 0; i < slice.row_count; ++i) {
      positions_[slice.first_row + i] = slice.position + i;
    }
  }
  for (int32_t layer = 0; layer < static_cast<int32_t>(weights_.layers.size()); ++layer) {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      return MakeFailure(FailureKind::kCancelled, "the executor is shutting down");
    }
    SL_RETURN_IF_ERROR(Attend(layer, slices, rows, hidden));
    SL_RETURN_IF_ERROR(FeedForward(layer, rows, hidden));
  }
  return absl::OkStatus();
}

absl::Status LlamaForward::Normalize(const float* x, const std::vector<float>& weight, int32_t rows,
                                     float* y) {
  const int64_t dim = static_cast<int64_t>(weight.size());
  return kernels_.rms_norm(RmsNormArgs{.x = x,
                                       .weight = weight.data(),
                                       .y = y,
                                       .rows = rows,
                                       .dim = dim,
                                       .x_stride = dim,
                                       .y_stride = dim,
                                       .epsilon = weights_.hp.rms_epsilon},
                           stream_);
}

absl::Status LlamaForward::Multiply(const float* x, int64_t x_stride, int32_t rows,
                                    std::span<const MatmulPart> parts) {
  return kernels_.matmul(MatmulArgs{.x = x,
                                    .x_stride = x_stride,
                                    .rows = rows,
                                    .parts = parts,
                                    .scratch = matmul_scratch_->data(),
                                    .scratch_bytes = matmul_scratch_->size()},
                         stream_);
}

absl::Status LlamaForward::Attend(int32_t layer, std::span<const SequenceSlice> slices,
                                  int32_t rows, float* hidden) {
  const HyperParameters& hp = weights_.hp;
  const LayerWeights& w = weights_.layers[layer];
  const KvLayerView kv = kv_.Layer(layer);
  SL_RETURN_IF_ERROR(Normalize(hidden, w.attn_norm, rows, normed_.data()));
  const auto bias = [](const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  const MatmulPart qkv[] = {
      {.weight = &w.q, .bias = bias(w.q_bias), .out = q_.data(), .out_stride = hp.q_dim()},
      {.weight = &w.k, .bias = bias(w.k_bias), .out = k_.data(), .out_stride = hp.kv_dim()},
      {.weight = &w.v, .bias = bias(w.v_bias), .out = v_.data(), .out_stride = hp.kv_dim()},
  };
  SL_RETURN_IF_ERROR(Multiply(normed_.data(), hp.hidden_dim, rows, qkv));
  SL_RETURN_IF_ERROR(PlaceHeads(q_.data(), hp.q_heads, w.q_norm, rows));
  SL_RETURN_IF_ERROR(PlaceHeads(k_.data(), hp.kv_heads, w.k_norm, rows));
  SL_RETURN_IF_ERROR(kernels_.append_kv(AppendKvArgs{.k = k_.data(),
                                                     .v = v_.data(),
                                                     .k_stride = hp.kv_dim(),
                                                     .v_stride = hp.kv_dim(),
                                                     .slices = slices,
                                                     .kv = kv},
                                        stream_));
  SL_RETURN_IF_ERROR(kernels_.attention(
      AttentionArgs{.q = q_.data(),
                    .out = attended_.data(),
                    .q_stride = hp.q_dim(),
                    .out_stride = hp.q_dim(),
                    .q_heads = hp.q_heads,
                    .scale = attention_scale_,
                    .slices = slices,
                    .kv = kv,
                    .workspace = attention_workspace_.data(),
                    .workspace_floats = static_cast<int64_t>(attention_workspace_.size())},
      stream_));
  const MatmulPart out{
      .weight = &w.attn_out, .out = hidden, .out_stride = hp.hidden_dim, .accumulate = true};
  return Multiply(attended_.data(), hp.q_dim(), rows, {&out, 1});
}

absl::Status LlamaForward::PlaceHeads(float* x, int32_t heads, const std::vector<float>& norm,
                                      int32_t rows) {
  const HyperParameters& hp = weights_.hp;
  const int64_t stride = int64_t{heads} * hp.head_dim;
  if (!norm.empty()) {
    SL_RETURN_IF_ERROR(kernels_.rms_norm(RmsNormArgs{.x = x,
                                                     .weight = norm.data(),
                                                     .y = x,
                                                     .rows = rows,
                                                     .groups = heads,
                                                     .dim = hp.head_dim,
                                                     .x_stride = stride,
                                                     .y_stride = stride,
                                                     .epsilon = hp.rms_epsilon},
                                         stream_));
  }
  return kernels_.rope(RopeArgs{.x = x,
                                .positions = positions_.data(),
                                .table = &rope_,
                                .rows = rows,
                                .heads = heads,
                                .head_dim = hp.head_dim,
                                .x_stride = stride,
                                .pairing = PairsOf(hp.rope.pairing)},
                       stream_);
}

absl::Status LlamaForward::FeedForward(int32_t layer, int32_t rows, float* hidden) {
  const HyperParameters& hp = weights_.hp;
  const LayerWeights& w = weights_.layers[layer];
  SL_RETURN_IF_ERROR(Normalize(hidden, w.ffn_norm, rows, normed_.data()));
  const MatmulPart gate_up[] = {
      {.weight = &w.gate, .out = gate_.data(), .out_stride = hp.ff_dim},
      {.weight = &w.up, .out = up_.data(), .out_stride = hp.ff_dim},
  };
  SL_RETURN_IF_ERROR(Multiply(normed_.data(), hp.hidden_dim, rows, gate_up));
  SL_RETURN_IF_ERROR(kernels_.swiglu(SwiGluArgs{.gate = gate_.data(),
                                                .up = up_.data(),
                                                .out = gate_.data(),
                                                .rows = rows,
                                                .dim = hp.ff_dim,
                                                .gate_stride = hp.ff_dim,
                                                .up_stride = hp.ff_dim,
                                                .out_stride = hp.ff_dim},
                                     stream_));
  const MatmulPart down{
      .weight = &w.down, .out = hidden, .out_stride = hp.hidden_dim, .accumulate = true};
  return Multiply(gate_.data(), hp.ff_dim, rows, {&down, 1});
}

absl::Status LlamaForward::Finish(const float* hidden, std::span<const int32_t> rows,
                                  float* logits) {
  SL_CHECK(weights_.contents.head);
  const int64_t dim = weights_.hp.hidden_dim;
  const int64_t vocab = weights_.hp.vocab_size;
  for (size_t begin = 0; begin < rows.size();) {
    const int32_t count = static_cast<int32_t>(
        std::min(rows.size() - begin, static_cast<size_t>(options_.logits_rows_max)));
    for (int32_t i = 0; i < count; ++i) {
      std::copy_n(hidden + rows[begin + i] * dim, dim, chosen_.data() + i * dim);
    }
    SL_RETURN_IF_ERROR(Normalize(chosen_.data(), weights_.final_norm, count, normed_.data()));
    const MatmulPart part{.weight = &weights_.lm_head(),
                          .out = logits + static_cast<int64_t>(begin) * vocab,
                          .out_stride = vocab};
    SL_RETURN_IF_ERROR(Multiply(normed_.data(), dim, count, {&part, 1}));
    begin += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace shardline
