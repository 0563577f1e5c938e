#pragma once

// A whole model in this process, without nodes: what its forward pass does at best.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/thread_pool.h"
#include "node/exec/kv_store.h"
#include "node/exec/llama_forward.h"
#include "node/exec/shard_weights.h"

namespace shardline::bench {

// Dies when the file cannot be loaded or a pass fails.
class BenchModel {
 public:
  struct Options {
    int32_t sessions = 1;
    int32_t context_tokens = 1024;  // Of each.
    int32_t rows_max = 512;
  };
  BenchModel(const std::string& path, const Options& options);

  // Runs `count` tokens of session 0 at `position`, and the logits of the last.
  void Run(int32_t position, int32_t count);

  // Runs one token of each of the first `sessions` at `position`, and the logits of all.
  void RunBatch(int32_t position, int32_t sessions);
  // The two halves of RunBatch; the second needs the first's hidden state.
  void RunBatchLayers(int32_t position, int32_t sessions);
  void FinishBatch(int32_t sessions);
  // Of one session, after a Finish: scratch for whoever samples.
  std::span<float> LogitsOf(int32_t session);

  // Everything that a token of `sessions` reads at about `position`: all packed matrices, and the
  // KV so far.
  std::vector<std::span<const std::byte>> BytesRead(int32_t position, int32_t sessions) const;

  // Multiplications of a weight with an activation, of `rows` tokens through all layers.
  double LayerProducts(int32_t rows) const;
  // And of `rows` through the lm_head.
  double HeadProducts(int32_t rows) const;

  ThreadPool& pool() { return pool_; }
  int32_t vocab_size() const { return weights_.hp.vocab_size; }

 private:
  std::vector<const PackedWeight*> LayerMatrices() const;
  const int32_t* PagesOf(int32_t session) const {
    return pages_.data() + session * pages_per_session_;
  }

  ThreadPool pool_;
  const DeviceStream stream_;
  const int32_t pages_per_session_;
  std::vector<int32_t> pages_;  // [sessions, pages_per_session]
  ShardWeights weights_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<LlamaForward> forward_;
  std::vector<float> hidden_;
  std::vector<float> logits_;
};

}  // namespace shardline::bench
