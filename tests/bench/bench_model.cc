#include "tests/bench/bench_model.h"

#include <numeric>

#include "base/check.h"
#include "base/version.h"
#include "kernels/kernel_table.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"

namespace shardline::bench {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  SL_CHECK(value.ok(), value.status().ToString());
  return *std::move(value);
}

void OkOrDie(const absl::Status& status) { SL_CHECK(status.ok(), status.ToString()); }

}  // namespace

BenchModel::BenchModel(const std::string& path, const Options& options)
    : pool_({}),
      stream_{.pool = &pool_},
      pages_per_session_(options.context_tokens / kPageTokens),
      pages_(static_cast<size_t>(options.sessions * pages_per_session_)) {
  const GgufFile file = OrDie(GgufFile::Open(path));
  const HyperParameters hp = OrDie(HyperParameters::FromGguf(file));
  weights_ = OrDie(LoadShardWeights(file, hp, WholeModel(hp), WeightPolicy::kAsStored, stream_,
                                    [](uint64_t, uint64_t) { return true; }));
  kv_ = OrDie(KvStore::Create(hp, hp.layer_count, static_cast<int32_t>(pages_.size())));
  forward_ = OrDie(LlamaForward::Create(&weights_, kv_.get(), OrDie(CpuKernels()), stream_,
                                        {.rows_max = options.rows_max,
                                         .logits_rows_max = options.sessions,
                                         .context_tokens_max = options.context_tokens}));
  std::iota(pages_.begin(), pages_.end(), 0);
  logits_.resize(static_cast<size_t>(options.sessions) * static_cast<size_t>(hp.vocab_size));
}

void BenchModel::Run(int32_t position, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (position + i) * 31 % 4096;
  hidden_.resize(static_cast<size_t>(count) * static_cast<size_t>(weights_.hp.hidden_dim));
  const SequenceSlice slice = {
      .first_row = 0, .row_count = count, .position = position, .pages = PagesOf(0)};
  const int32_t last = count - 1;
  OkOrDie(forward_->Embed(tokens, hidden_.data()));
  OkOrDie(forward_->RunLayers({&slice, 1}, hidden_.data()));
  OkOrDie(forward_->Finish(hidden_.data(), {&last, 1}, logits_.data()));
}

void BenchModel::RunBatch(int32_t position, int32_t sessions) {
  RunBatchLayers(position, sessions);
  FinishBatch(sessions);
}

void BenchModel::RunBatchLayers(int32_t position, int32_t sessions) {
  std::vector<int32_t> tokens;
  std::vector<SequenceSlice> slices;
  for (int32_t i = 0; i < sessions; ++i) {
    tokens.push_back((position * 17 + i * 31) % 4096);
    slices.push_back({.first_row = i, .row_count = 1, .position = position, .pages = PagesOf(i)});
  }
  hidden_.resize(static_cast<size_t>(sessions) * static_cast<size_t>(weights_.hp.hidden_dim));
  OkOrDie(forward_->Embed(tokens, hidden_.data()));
  OkOrDie(forward_->RunLayers(slices, hidden_.data()));
}

void BenchModel::FinishBatch(int32_t sessions) {
  std::vector<int32_t> rows(static_cast<size_t>(sessions));
  std::iota(rows.begin(), rows.end(), 0);
  OkOrDie(forward_->Finish(hidden_.data(), rows, logits_.data()));
}

std::span<float> BenchModel::LogitsOf(int32_t session) {
  const auto vocab = static_cast<size_t>(weights_.hp.vocab_size);
  return std::span(logits_).subspan(static_cast<size_t>(session) * vocab, vocab);
}

std::vector<const PackedWeight*> BenchModel::LayerMatrices() const {
  std::vector<const PackedWeight*> matrices;
  for (const LayerWeights& layer : weights_.layers) {
    matrices.insert(matrices.end(), {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate,
                                     &layer.up, &layer.down});
  }
  return matrices;
}

std::vector<std::span<const std::byte>> BenchModel::BytesRead(int32_t position,
                                                              int32_t sessions) const {
  std::vector<std::span<const std::byte>> buffers;
  const auto add = [&buffers](const PackedWeight& weight) {
    buffers.emplace_back(weight.panel(0), static_cast<size_t>(weight.bytes()));
  };
  for (const PackedWeight* weight : LayerMatrices()) add(*weight);
  add(weights_.lm_head());
  const int64_t pages = (position + kPageTokens - 1) / kPageTokens;
  const auto* const kv = reinterpret_cast<const std::byte*>(kv_->Layer(0).base);
  for (int32_t i = 0; i < sessions; ++i) {
    buffers.emplace_back(kv + PagesOf(i)[0] * kv_->page_bytes(),
                         static_cast<size_t>(pages * kv_->page_bytes()));
  }
  return buffers;
}

double BenchModel::LayerProducts(int32_t rows) const {
  double weights = 0;
  for (const PackedWeight* weight : LayerMatrices()) {
    weights += static_cast<double>(weight->n()) * static_cast<double>(weight->k());
  }
  return weights * rows;
}

double BenchModel::HeadProducts(int32_t rows) const {
  const PackedWeight& head = weights_.lm_head();
  return static_cast<double>(head.n()) * static_cast<double>(head.k()) * rows;
}

}  // namespace shardline::bench
