#include "node/model_shard_loader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "kernels/kernel_table.h"
#include "kernels/thread_pool.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"
#include "model/manifest.h"
#include "model/model_layout.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "model/tokenizer/vocabulary.h"
#include "node/exec/cpu_executor.h"
#include "node/exec/kv_store.h"
#include "node/exec/llama_forward.h"
#include "node/exec/measure_cost.h"
#include "node/exec/shard_weights.h"

namespace shardline {
namespace {

// An executor and all that it computes with; the executor goes first.
class CpuShard : public DeviceExecutor {
 public:
  CpuShard(std::unique_ptr<ThreadPool> pool, std::unique_ptr<ShardWeights> weights,
           std::unique_ptr<KvStore> kv, std::unique_ptr<LlamaForward> forward)
      : pool_(std::move(pool)),
        weights_(std::move(weights)),
        kv_(std::move(kv)),
        executor_(std::move(forward), SystemClock(), CpuExecutorOptions{}) {}

  absl::Status Submit(ComputeJob job, DoneCallback done) override {
    return executor_.Submit(std::move(job), std::move(done));
  }
  void Rest() override { executor_.Rest(); }
  ExecutorProgress progress() const override { return executor_.progress(); }
  void Shutdown() override { executor_.Shutdown(); }

 private:
  const std::unique_ptr<ThreadPool> pool_;
  const std::unique_ptr<ShardWeights> weights_;
  const std::unique_ptr<KvStore> kv_;
  CpuExecutor executor_;
};

// Everything of section "numerics id" that is decided here; the weights are in the model's id.
NumericsId NumericsOf(const KernelTable& kernels) {
  return NumericsId(absl::StrCat(std::string(kernels.backend), "/stored/kv-f16/residual-f32/spec-",
                                 kNumericsSpecVersion));
}

absl::Status CheckMemory(const GgufFile& file, const HyperParameters& hp,
                         const ShardContents& contents, const ShardOrder& order,
                         uint64_t memory_bytes) {
  SL_ASSIGN_OR_RETURN(const ModelCosts costs, CostsOf(file, hp));
  const uint64_t weight_bytes = ShardBytes(costs, contents);
  const uint64_t kv_tokens = static_cast<uint64_t>(order.kv_pages) * kPageTokens;
  const uint64_t kv_bytes = kv_tokens * ShardKvBytesPerToken(costs, contents);
  if (weight_bytes + kv_bytes <= memory_bytes) return absl::OkStatus();
  return MakeFailure(
      FailureKind::kOverloaded,
      absl::StrCat(order.layers.ToString(), " need ", weight_bytes, " bytes of weights and ",
                   kv_bytes, " of KV; this node may use ", memory_bytes));
}

absl::Status CheckDigests(const GgufFile& file, const HyperParameters& hp,
                          const ShardContents& contents, const ShardOrder& order) {
  SL_ASSIGN_OR_RETURN(const ModelManifest manifest, ParseManifest(order.manifest));
  SL_RETURN_IF_ERROR(VerifyMetadata(file, manifest));
  std::vector<std::string> names;
  for (TensorNeed& need : RequiredTensors(hp, contents)) names.push_back(std::move(need.name));
  return VerifyTensors(file, manifest, names);
}

// Null for a file whose tokenizer is missing or unknown: it can generate, if without rules.
std::shared_ptr<const TokenTrie> VocabularyOf(const GgufFile& file) {
  absl::StatusOr<TokenizerSpec> spec = ReadTokenizerSpec(file.metadata());
  if (!spec.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<const Vocabulary>> vocabulary = Vocabulary::CreateByType(&*spec);
  if (!vocabulary.ok()) return nullptr;
  return std::make_shared<const TokenTrie>(*std::move(vocabulary));
}

}  // namespace

ModelShardLoader::ModelShardLoader(ModelShardLoaderOptions options)
    : options_(std::move(options)) {}

std::string ModelShardLoader::FindFile(const ShardOrder& order) const {
  const std::filesystem::path name = order.model_name;
  const bool plain = !name.empty() && name == name.filename() && name != "..";
  if (!options_.model_dir.empty() && plain) {
    const std::filesystem::path own = options_.model_dir / name;
    std::error_code error;
    if (std::filesystem::exists(own, error)) return own.string();
  }
  return order.model_path;
}

absl::StatusOr<LoadedShard> ModelShardLoader::Load(const ShardOrder& order,
                                                   const Progress& progress) {
  SL_ASSIGN_OR_RETURN(const KernelTable* kernels, CpuKernels());
  SL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(FindFile(order)));
  // Digests first: of a file that is another model, nothing else is worth saying.
  SL_ASSIGN_OR_RETURN(const HyperParameters hp, HyperParameters::FromGguf(file));
  if (order.layers.end > hp.layer_count) {
    return MakeFailure(FailureKind::kIncompatibleRecipe,
                       absl::StrCat(order.layers.ToString(), " of a model of ", hp.layer_count));
  }
  const ShardContents contents = {
      .layers = order.layers, .embedding = order.is_head, .head = order.is_head};
  SL_RETURN_IF_ERROR(CheckDigests(file, hp, contents, order));
  SL_RETURN_IF_ERROR(CheckMemory(file, hp, contents, order, options_.memory_bytes));

  auto pool = std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = options_.threads});
  const DeviceStream stream = {.pool = pool.get()};
  uint64_t tensor_bytes = 0;
  const auto count = [&](uint64_t bytes_done, uint64_t bytes_total) {
    tensor_bytes = bytes_total;
    return progress(bytes_done, bytes_total);
  };
  SL_ASSIGN_OR_RETURN(ShardWeights loaded,
                      LoadShardWeights(file, hp, contents, WeightPolicy::kAsStored, stream, count));
  auto weights = std::make_unique<ShardWeights>(std::move(loaded));
  SL_ASSIGN_OR_RETURN(std::unique_ptr<KvStore> kv,
                      KvStore::Create(hp, order.layers.count(), order.kv_pages));
  LlamaForwardOptions forward_options;
  forward_options.context_tokens_max = order.context_tokens_max == 0
                                           ? hp.context_length
                                           : std::min(order.context_tokens_max, hp.context_length);
  SL_ASSIGN_OR_RETURN(
      std::unique_ptr<LlamaForward> forward,
      LlamaForward::Create(weights.get(), kv.get(), kernels, stream, forward_options));

  LoadedShard shard;
  SL_ASSIGN_OR_RETURN(shard.cost, MeasureCost(*forward, *SystemClock(), {}));
  shard.numerics_id = NumericsOf(*kernels);
  shard.layers_total = hp.layer_count;
  shard.hidden_dim = hp.hidden_dim;
  shard.vocab_size = hp.vocab_size;
  shard.context_tokens_max = forward->context_tokens_max();
  shard.memory_bytes =
      static_cast<uint64_t>(weights->packed_bytes() + kv->page_bytes() * kv->pages_total());
  shard.tensor_bytes = tensor_bytes;
  if (order.is_head) shard.vocabulary = VocabularyOf(file);
  shard.executor = std::make_shared<CpuShard>(std::move(pool), std::move(weights), std::move(kv),
                                              std::move(forward));
  return shard;
}

}  // namespace shardline
