// A whole model in this process, against its floors.
//
//   model_bench decode MODEL.gguf     weight and KV bytes a token / time, over a plain read of the
//                                     same buffers by the same threads
//   model_bench prefill MODEL.gguf    byte products of a 512-token prompt a CPU second, over a loop
//                                     of nothing but byte dot products
//
// Floor and subject alternate; the figure is the median of the pairs' ratios.

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/version.h"
#include "kernels/kernel_table.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"
#include "node/exec/kv_store.h"
#include "node/exec/llama_forward.h"
#include "node/exec/shard_weights.h"
#include "tests/bench/floors.h"

namespace shardline::bench {
namespace {

constexpr int32_t kContext = 1024;
constexpr int kPairs = 15;
constexpr int kDecodeTokens = 24;  // In one pair.
constexpr int32_t kPromptTokens = 512;

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  SL_CHECK(value.ok(), value.status().ToString());
  return *std::move(value);
}

// One session of one whole model.
class Model {
 public:
  explicit Model(const std::string& path)
      : pool_({}), stream_{.pool = &pool_}, pages_(kContext / kPageTokens) {
    const GgufFile file = OrDie(GgufFile::Open(path));
    const HyperParameters hp = OrDie(HyperParameters::FromGguf(file));
    weights_ = OrDie(LoadShardWeights(file, hp, WholeModel(hp), WeightPolicy::kAsStored, stream_,
                                      [](uint64_t, uint64_t) { return true; }));
    kv_ = OrDie(KvStore::Create(hp, hp.layer_count, kContext / kPageTokens));
    forward_ = OrDie(LlamaForward::Create(
        &weights_, kv_.get(), OrDie(CpuKernels()), stream_,
        {.rows_max = kPromptTokens, .logits_rows_max = 1, .context_tokens_max = kContext}));
    std::iota(pages_.begin(), pages_.end(), 0);
    logits_.resize(static_cast<size_t>(hp.vocab_size));
  }

  // Runs tokens at `position` and the logits of the last.
  void Run(int32_t position, int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = (position + i) * 31 % 4096;
    hidden_.resize(static_cast<size_t>(count) * static_cast<size_t>(weights_.hp.hidden_dim));
    const SequenceSlice slice = {
        .first_row = 0, .row_count = count, .position = position, .pages = pages_.data()};
    const int32_t last = count - 1;
    const bool ok = forward_->Embed(tokens, hidden_.data()).ok() &&
                    forward_->RunLayers({&slice, 1}, hidden_.data()).ok() &&
                    forward_->Finish(hidden_.data(), {&last, 1}, logits_.data()).ok();
    SL_CHECK(ok);
  }

  // Everything a token reads, at about `position`: all packed matrices and the KV so far.
  std::vector<std::span<const std::byte>> BytesOfOneToken(int32_t position) const {
    std::vector<std::span<const std::byte>> buffers;
    const auto add = [&buffers](const PackedWeight& weight) {
      buffers.emplace_back(weight.panel(0), static_cast<size_t>(weight.bytes()));
    };
    for (const LayerWeights& layer : weights_.layers) {
      for (const PackedWeight* weight :
           {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
        add(*weight);
      }
    }
    add(weights_.lm_head());
    const int64_t pages = (position + kPageTokens - 1) / kPageTokens;
    buffers.emplace_back(reinterpret_cast<const std::byte*>(kv_->Layer(0).base),
                         static_cast<size_t>(pages * kv_->page_bytes()));
    return buffers;
  }

  // Multiplications of a weight with an activation, of `rows` tokens through all layers.
  double LayerProducts(int32_t rows) const {
    double weights = 0;
    for (const LayerWeights& layer : weights_.layers) {
      for (const PackedWeight* weight :
           {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down}) {
        weights += static_cast<double>(weight->n()) * static_cast<double>(weight->k());
      }
    }
    return weights * rows;
  }

  ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
  DeviceStream stream_;
  ShardWeights weights_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<LlamaForward> forward_;
  std::vector<int32_t> pages_;
  std::vector<float> hidden_;
  std::vector<float> logits_;
};

void Report(const char* name, const std::vector<double>& ratios, const char* detail, double value) {
  std::printf("%s: median %.3f, p10 %.3f, p90 %.3f of %zu pairs; %s %.1f\n", name,
              Quantile(ratios, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9), ratios.size(),
              detail, value);
  std::printf("figure %s %.3f ratio\n", name, Quantile(ratios, 0.5));
}

void Decode(Model& model) {
  constexpr int32_t kStart = 128;
  model.Run(0, kStart);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto buffers = model.BytesOfOneToken(kStart);
    const double read = SecondsOf([&] {
      for (int i = 0; i < kDecodeTokens; ++i) PlainRead(buffers, model.pool());
    });
    const double decode = SecondsOf([&] {
      for (int i = 0; i < kDecodeTokens; ++i) model.Run(kStart + i, 1);
    });
    ratios.push_back(read / decode);
    rates.push_back(kDecodeTokens / decode);
  }
  Report("decode_vs_read_bandwidth", ratios, "tokens/s", Quantile(rates, 0.5));
}

void Prefill(Model& model) {
  SL_CHECK(HasVnni(), "the floor of this figure needs AVX-512 VNNI");
  model.Run(0, kPromptTokens);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double peak = PeakProductsPerCpuSecond(model.pool());
    double wall = 0;
    const double cpu =
        CpuSecondsOf([&] { wall = SecondsOf([&] { model.Run(0, kPromptTokens); }); });
    ratios.push_back(model.LayerProducts(kPromptTokens) / cpu / peak);
    rates.push_back(kPromptTokens / wall);
  }
  Report("prefill_vs_int8_peak", ratios, "tokens/s", Quantile(rates, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const bool decode = argc == 3 && std::strcmp(argv[1], "decode") == 0;
  const bool prefill = argc == 3 && std::strcmp(argv[1], "prefill") == 0;
  if (!decode && !prefill) {
    std::fprintf(stderr, "usage: model_bench decode|prefill MODEL.gguf\n");
    return 2;
  }
  shardline::bench::Model model(argv[2]);
  if (decode) shardline::bench::Decode(model);
  if (prefill) shardline::bench::Prefill(model);
  return 0;
}
