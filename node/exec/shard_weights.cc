#include "node/exec/shard_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

WeightFormat FormatOf(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kF32:
      return WeightFormat::kF32;
    case GgufTensorType::kF16:
      return WeightFormat::kF16;
    case GgufTensorType::kBF16:
      return WeightFormat::kBF16;
    case GgufTensorType::kQ8_0:
      return WeightFormat::kQ8_0;
    case GgufTensorType::kQ4_0:
      return WeightFormat::kQ4_0;
    case GgufTensorType::kQ4_1:
      return WeightFormat::kQ4_1;
    case GgufTensorType::kQ5_0:
      return WeightFormat::kQ5_0;
    case GgufTensorType::kQ5_1:
      return WeightFormat::kQ5_1;
    case GgufTensorType::kQ4_K:
      return WeightFormat::kQ4_K;
    case GgufTensorType::kQ5_K:
      return WeightFormat::kQ5_K;
    case GgufTensorType::kQ6_K:
      return WeightFormat::kQ6_K;
  }
  SL_CHECK(false, "tensor type ", static_cast<uint32_t>(type));
  return WeightFormat::kF32;
}

// A hint about the whole pages inside `bytes`, which must be mapped from a file.
void Advise(std::span<const std::byte> bytes, int advice) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

absl::StatusOr<PackedWeight> ToF32(const PackedWeight& weight, DeviceStream stream) {
  std::vector<float> values(static_cast<size_t>(weight.n() * weight.k()));
  for (int64_t row = 0; row < weight.n(); ++row) {
    DequantizeRow(weight, row, values.data() + row * weight.k());
  }
  return PackWeight(WeightFormat::kF32, weight.n(), weight.k(), std::as_bytes(std::span(values)),
                    stream);
}

// Takes tensors out of the file one by one and keeps the count.
class Loader {
 public:
  Loader(const GgufFile& file, WeightPolicy policy, DeviceStream stream, LoadProgress progress)
      : file_(file), policy_(policy), stream_(stream), progress_(progress) {}

  absl::Status Start(const std::vector<TensorNeed>& needs) {
    for (const TensorNeed& need : needs) total_bytes_ += Find(need.name).data.size();
    return Report();
  }

  absl::Status Load(const std::string& name, PackedWeight& weight) {
    const GgufTensor& tensor = Find(name);
    SL_CHECK(tensor.shape.size() == 2, name);
    if (file_.is_mapped()) Advise(tensor.data, MADV_WILLNEED);
    absl::StatusOr<PackedWeight> packed =
        PackWeight(FormatOf(tensor.type), tensor.shape[1], tensor.shape[0], tensor.data, stream_);
    if (packed.ok() && policy_ == WeightPolicy::kDequantizeToF32) packed = ToF32(*packed, stream_);
    if (!packed.ok()) return Named(name, packed.status());
    weight = *std::move(packed);
    return Finish(tensor);
  }

  absl::Status Load(const std::string& name, std::vector<float>& vector) {
    const GgufTensor& tensor = Find(name);
    SL_CHECK(tensor.type == GgufTensorType::kF32, name);
    vector.resize(tensor.data.size() / sizeof(float));
    std::memcpy(vector.data(), tensor.data.data(), tensor.data.size());
    return Finish(tensor);
  }

 private:
  // REQUIRES: CheckTensors has passed.
  const GgufTensor& Find(const std::string& name) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    SL_CHECK(tensor != nullptr, name);
    return *tensor;
  }

  absl::Status Finish(const GgufTensor& tensor) {
    if (file_.is_mapped()) Advise(tensor.data, MADV_DONTNEED);
    done_bytes_ += tensor.data.size();
    return Report();
  }

  absl::Status Report() {
    if (progress_(done_bytes_, total_bytes_)) return absl::OkStatus();
    return MakeFailure(FailureKind::kCancelled, absl::StrCat("loading stopped at ", done_bytes_,
                                                             " of ", total_bytes_, " bytes"));
  }

  absl::Status Named(const std::string& name, const absl::Status& status) const {
    const std::string message = absl::StrCat(file_.PathOf(Find(name)), ": tensor ", name, ": ",
                                             std::string(status.message()));
    FailureDetail detail = FailureDetailOf(status);
    if (detail.kind == FailureKind::kNone) return absl::Status(status.code(), message);
    return MakeFailure(detail, message);
  }

  const GgufFile& file_;
  const WeightPolicy policy_;
  const DeviceStream stream_;
  const LoadProgress progress_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

absl::Status LoadLayer(const HyperParameters& hp, int32_t layer, Loader& loader,
                       LayerWeights& weights) {
  const auto name = [layer](const char* suffix) {
    return absl::StrCat("blk.", layer, ".", suffix);
  };
  SL_RETURN_IF_ERROR(loader.Load(name("attn_norm.weight"), weights.attn_norm));
  SL_RETURN_IF_ERROR(loader.Load(name("attn_q.weight"), weights.q));
  SL_RETURN_IF_ERROR(loader.Load(name("attn_k.weight"), weights.k));
  SL_RETURN_IF_ERROR(loader.Load(name("attn_v.weight"), weights.v));
  if (hp.attention_bias) {
    SL_RETURN_IF_ERROR(loader.Load(name("attn_q.bias"), weights.q_bias));
    SL_RETURN_IF_ERROR(loader.Load(name("attn_k.bias"), weights.k_bias));
    SL_RETURN_IF_ERROR(loader.Load(name("attn_v.bias"), weights.v_bias));
  }
  if (hp.qk_norm) {
    SL_RETURN_IF_ERROR(loader.Load(name("attn_q_norm.weight"), weights.q_norm));
    SL_RETURN_IF_ERROR(loader.Load(name("attn_k_norm.weight"), weights.k_norm));
  }
  SL_RETURN_IF_ERROR(loader.Load(name("attn_output.weight"), weights.attn_out));
  SL_RETURN_IF_ERROR(loader.Load(name("ffn_norm.weight"), weights.ffn_norm));
  SL_RETURN_IF_ERROR(loader.Load(name("ffn_gate.weight"), weights.gate));
  SL_RETURN_IF_ERROR(loader.Load(name("ffn_up.weight"), weights.up));
  return loader.Load(name("ffn_down.weight"), weights.down);
}

}  // namespace

int64_t ShardWeights::packed_bytes() const {
  int64_t bytes = embedding.bytes() + untied_lm_head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedWeight* weight :
         {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
      bytes += weight->bytes();
    }
  }
  return bytes;
}

absl::StatusOr<ShardWeights> LoadShardWeights(const GgufFile& file, const HyperParameters& hp,
                                              const ShardContents& contents, WeightPolicy policy,
                                              DeviceStream stream, LoadProgress progress) {
  SL_RETURN_IF_ERROR(CheckTensors(file, hp, contents));
  SL_RETURN_IF_ERROR(file.CheckUnchanged());
  const std::vector<TensorNeed> needs = RequiredTensors(hp, contents);
  Loader loader(file, policy, stream, progress);
  SL_RETURN_IF_ERROR(loader.Start(needs));

  ShardWeights weights{.hp = hp, .contents = contents};
  if (contents.embedding || (contents.head && hp.tied_head)) {
    SL_RETURN_IF_ERROR(loader.Load("token_embd.weight", weights.embedding));
  }
  if (!contents.layers.empty() && hp.rope.scaling == RopeScaling::kFactors) {
    SL_RETURN_IF_ERROR(loader.Load("rope_freqs.weight", weights.rope_divisors));
  }
  weights.layers.resize(static_cast<size_t>(contents.layers.empty() ? 0 : contents.layers.count()));
  for (int32_t i = 0; i < static_cast<int32_t>(weights.layers.size()); ++i) {
    SL_RETURN_IF_ERROR(LoadLayer(hp, contents.layers.begin + i, loader, weights.layers[i]));
  }
  if (contents.head) {
    SL_RETURN_IF_ERROR(loader.Load("output_norm.weight", weights.final_norm));
    if (!hp.tied_head) SL_RETURN_IF_ERROR(loader.Load("output.weight", weights.untied_lm_head));
  }
  SL_RETURN_IF_ERROR(file.CheckUnchanged());
  return weights;
}

}  // namespace shardline
