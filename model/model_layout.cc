#include "model/model_layout.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr char kEmbedding[] = "token_embd.weight";
constexpr char kFinalNorm[] = "output_norm.weight";
constexpr char kLmHead[] = "output.weight";
constexpr char kRopeFactors[] = "rope_freqs.weight";

std::string NeededBy(LayerRange layers) {
  return layers.empty() ? "the head stage" : layers.ToString();
}

void AppendLayer(const HyperParameters& hp, int32_t layer, std::vector<TensorNeed>& needs) {
  const auto add = [&](const char* suffix, TensorShape shape) {
    const TensorRole role = shape.size() == 1 ? TensorRole::kVector : TensorRole::kMatrix;
    needs.push_back({.name = absl::StrCat("blk.", layer, ".", suffix),
                     .shape = std::move(shape),
                     .role = role,
                     .layers = {layer, layer + 1}});
  };
  add("attn_norm.weight", {hp.hidden_dim});
  add("attn_q.weight", {hp.hidden_dim, hp.q_dim()});
  add("attn_k.weight", {hp.hidden_dim, hp.kv_dim()});
  add("attn_v.weight", {hp.hidden_dim, hp.kv_dim()});
  if (hp.attention_bias) {
    add("attn_q.bias", {hp.q_dim()});
    add("attn_k.bias", {hp.kv_dim()});
    add("attn_v.bias", {hp.kv_dim()});
  }
  if (hp.qk_norm) {
    add("attn_q_norm.weight", {hp.head_dim});
    add("attn_k_norm.weight", {hp.head_dim});
  }
  add("attn_output.weight", {hp.q_dim(), hp.hidden_dim});
  add("ffn_norm.weight", {hp.hidden_dim});
  add("ffn_gate.weight", {hp.hidden_dim, hp.ff_dim});
  add("ffn_up.weight", {hp.hidden_dim, hp.ff_dim});
  add("ffn_down.weight", {hp.ff_dim, hp.hidden_dim});
}

absl::Status CheckTensor(const GgufFile& file, const TensorNeed& need, LayerRange needed_by) {
  const GgufTensor* tensor = file.FindTensor(need.name);
  if (tensor == nullptr) return MissingTensor(file.metadata().file(), need.name, needed_by);
  if (tensor->shape != need.shape) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(file.PathOf(*tensor), ": tensor ", need.name, " has shape ",
                                    ShapeToString(tensor->shape), ", but ", NeededBy(needed_by),
                                    " needs ", ShapeToString(need.shape)));
  }
  if (need.role == TensorRole::kVector && tensor->type != GgufTensorType::kF32) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat(file.PathOf(*tensor), ": tensor ", need.name, " is stored as ",
                     std::string(TraitsOf(tensor->type).name), ", but this build needs f32"));
  }
  return absl::OkStatus();
}

uint64_t BytesOf(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  return tensor == nullptr ? 0 : tensor->data.size();
}

}  // namespace

ShardContents WholeModel(const HyperParameters& hp) {
  return {.layers = {0, hp.layer_count}, .embedding = true, .head = true};
}

std::vector<TensorNeed> RequiredTensors(const HyperParameters& hp, const ShardContents& contents) {
  const LayerRange layers = contents.layers;
  SL_CHECK(layers.empty() || (layers.begin >= 0 && layers.end <= hp.layer_count));
  std::vector<TensorNeed> needs;
  if (contents.embedding || (contents.head && hp.tied_head)) {
    needs.push_back({.name = kEmbedding, .shape = {hp.hidden_dim, hp.vocab_size}});
  }
  if (!layers.empty() && hp.rope.scaling == RopeScaling::kFactors) {
    needs.push_back({.name = kRopeFactors,
                     .shape = {hp.rope.dimension_count / 2},
                     .role = TensorRole::kVector,
                     .layers = layers});
  }
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) AppendLayer(hp, layer, needs);
  if (contents.head) {
    needs.push_back({.name = kFinalNorm, .shape = {hp.hidden_dim}, .role = TensorRole::kVector});
    if (!hp.tied_head) {
      needs.push_back({.name = kLmHead, .shape = {hp.hidden_dim, hp.vocab_size}});
    }
  }
  return needs;
}

absl::Status MissingTensor(const std::string& file, const std::string& tensor, LayerRange layers) {
  return MakeFailure(
      FailureDetail{.kind = FailureKind::kInvalidRequest, .layers = layers},
      absl::StrCat(file, ": missing tensor ", tensor, ", needed by ", NeededBy(layers)));
}

absl::Status CheckTensors(const GgufFile& file, const HyperParameters& hp,
                          const ShardContents& contents) {
  for (const TensorNeed& need : RequiredTensors(hp, contents)) {
    // A layer's tensor is the whole shard's worry: without it none of its layers can serve.
    SL_RETURN_IF_ERROR(
        CheckTensor(file, need, need.layers.empty() ? LayerRange{} : contents.layers));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const GgufFile& file, const HyperParameters& hp) {
  const ShardContents whole = WholeModel(hp);
  SL_RETURN_IF_ERROR(CheckTensors(file, hp, whole));
  absl::flat_hash_set<std::string> known;
  for (TensorNeed& need : RequiredTensors(hp, whole)) known.insert(std::move(need.name));
  for (const GgufTensor& tensor : file.tensors()) {
    if (!known.contains(std::string(tensor.name))) {
      return MakeFailure(
          FailureKind::kInvalidRequest,
          absl::StrCat(file.PathOf(tensor), ": tensor ", Quoted(tensor.name), " is no part of a ",
                       std::string(ArchitectureName(hp.architecture)), " model of ", hp.layer_count,
                       " layers that this build supports"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelCosts> CostsOf(const GgufFile& file, const HyperParameters& hp) {
  SL_RETURN_IF_ERROR(CheckTensors(file, hp));
  ModelCosts costs;
  for (int32_t layer = 0; layer < hp.layer_count; ++layer) {
    std::vector<TensorNeed> needs;
    AppendLayer(hp, layer, needs);
    uint64_t bytes = 0;
    for (const TensorNeed& need : needs) bytes += BytesOf(file, need.name);
    costs.layer_bytes.push_back(bytes);
  }
  costs.embedding_bytes = BytesOf(file, kEmbedding);
  costs.final_norm_bytes = BytesOf(file, kFinalNorm);
  costs.lm_head_bytes = BytesOf(file, kLmHead);
  costs.shared_bytes = BytesOf(file, kRopeFactors);
  costs.kv_bytes_per_token_layer = 2 * sizeof(uint16_t) * static_cast<uint64_t>(hp.kv_dim());
  return costs;
}

uint64_t ShardBytes(const ModelCosts& costs, const ShardContents& contents) {
  const LayerRange layers = contents.layers;
  SL_CHECK(layers.empty() ||
           (layers.begin >= 0 && static_cast<size_t>(layers.end) <= costs.layer_bytes.size()));
  uint64_t bytes = layers.empty() ? 0 : costs.shared_bytes;
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) bytes += costs.layer_bytes[layer];
  const bool tied = costs.lm_head_bytes == 0;
  if (contents.embedding || (contents.head && tied)) bytes += costs.embedding_bytes;
  if (contents.head) bytes += costs.final_norm_bytes + costs.lm_head_bytes;
  return bytes;
}

uint64_t ShardKvBytesPerToken(const ModelCosts& costs, const ShardContents& contents) {
  const int32_t layers = contents.layers.empty() ? 0 : contents.layers.count();
  return costs.kv_bytes_per_token_layer * static_cast<uint64_t>(layers);
}

}  // namespace shardline
