#pragma once

// A model cut into shards that run in this process, one after the other, as stages would: hidden
// state goes from shard to shard, each shard has its own pages of every session.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kernel_table.h"
#include "node/exec/kv_store.h"
#include "node/exec/llama_forward.h"
#include "node/exec/shard_weights.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {

inline std::vector<LayerRange> CutAt(std::vector<int32_t> cuts, int32_t layer_count) {
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(layer_count);
  std::vector<LayerRange> ranges;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) ranges.push_back({cuts[i], cuts[i + 1]});
  return ranges;
}

struct PipelineOptions {
  std::vector<LayerRange> ranges;  // Empty: one shard.
  const KernelTable* kernels = nullptr;
  DeviceStream stream;
  WeightPolicy policy = WeightPolicy::kAsStored;
  int32_t rows_max = 256;
  int32_t context_tokens = 512;
  int32_t sessions_max = 8;
};

// Tokens of one session to run next.
struct Piece {
  int32_t session = 0;
  std::vector<int32_t> tokens;
};

// The weights of each shard; shared by the pipelines of a test, as packing takes a while.
using Shards = std::vector<ShardWeights>;

inline Shards LoadShards(const std::string& path, std::vector<LayerRange> ranges,
                         WeightPolicy policy = WeightPolicy::kAsStored, DeviceStream stream = {}) {
  const absl::StatusOr<GgufFile> file = GgufFile::Open(path);
  SL_CHECK(file.ok(), file.status().ToString());
  const absl::StatusOr<HyperParameters> hp = HyperParameters::FromGguf(*file);
  SL_CHECK(hp.ok(), hp.status().ToString());
  if (ranges.empty()) ranges.push_back({0, hp->layer_count});
  Shards shards;
  for (const LayerRange range : ranges) {
    const bool first = range.begin == 0;
    absl::StatusOr<ShardWeights> weights = LoadShardWeights(
        *file, *hp, ShardContents{.layers = range, .embedding = first, .head = first}, policy,
        stream, [](uint64_t, uint64_t) { return true; });
    SL_CHECK(weights.ok(), weights.status().ToString());
    shards.push_back(*std::move(weights));
  }
  return shards;
}

class Pipeline {
 public:
  Pipeline(const Shards& shards, const PipelineOptions& options) : hp_(shards[0].hp) {
    const int32_t session_pages = (options.context_tokens + kPageTokens - 1) / kPageTokens;
    free_pages_.resize(static_cast<size_t>(session_pages * options.sessions_max));
    std::iota(free_pages_.begin(), free_pages_.end(), 0);
    std::shuffle(free_pages_.begin(), free_pages_.end(), std::mt19937(5));
    for (const ShardWeights& weights : shards) {
      absl::StatusOr<std::unique_ptr<KvStore>> kv =
          KvStore::Create(hp_, static_cast<int32_t>(weights.layers.size()),
                          static_cast<int32_t>(free_pages_.size()));
      SL_CHECK(kv.ok(), kv.status().ToString());
      Poison(**kv, static_cast<int32_t>(weights.layers.size()));
      absl::StatusOr<std::unique_ptr<LlamaForward>> forward =
          LlamaForward::Create(&weights, kv->get(), options.kernels, options.stream,
                               LlamaForwardOptions{.rows_max = options.rows_max,
                                                   .logits_rows_max = 16,
                                                   .context_tokens_max = options.context_tokens});
      SL_CHECK(forward.ok(), forward.status().ToString());
      kv_.push_back(*std::move(kv));
      forwards_.push_back(*std::move(forward));
    }
  }

  // Logits of every row, [rows, vocab].
  std::vector<float> Run(const std::vector<Piece>& pieces) {
    std::vector<int32_t> tokens;
    std::vector<SequenceSlice> slices;
    for (const Piece& piece : pieces) {
      Session& session = sessions_[piece.session];
      const int32_t count = static_cast<int32_t>(piece.tokens.size());
      while (static_cast<int32_t>(session.pages.size()) * kPageTokens < session.length + count) {
        SL_CHECK(!free_pages_.empty());
        session.pages.push_back(free_pages_.back());
        free_pages_.pop_back();
      }
      slices.push_back({.first_row = static_cast<int32_t>(tokens.size()),
                        .row_count = count,
                        .position = session.length,
                        .pages = session.pages.data()});
      session.length += count;
      tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    }
    std::vector<float> hidden(tokens.size() * hp_.hidden_dim);
    EXPECT_THAT(forwards_[0]->Embed(tokens, hidden.data()), IsOk());
    for (const auto& forward : forwards_) {
      EXPECT_THAT(forward->RunLayers(slices, hidden.data()), IsOk());
    }
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(tokens.size() * hp_.vocab_size);
    EXPECT_THAT(forwards_[0]->Finish(hidden.data(), rows, logits.data()), IsOk());
    // Two NaNs would compare as equal: none may be there.
    EXPECT_TRUE(
        std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    return logits;
  }

  // Logits of every row of one session's tokens, run `chunk` at a time.
  std::vector<float> RunChunked(int32_t session, const std::vector<int32_t>& tokens, size_t chunk) {
    std::vector<float> all;
    for (size_t i = 0; i < tokens.size(); i += chunk) {
      const size_t end = std::min(tokens.size(), i + chunk);
      const std::vector<float> logits =
          Run({{session, {tokens.begin() + i, tokens.begin() + end}}});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  const HyperParameters& hp() const { return hp_; }

 private:
  struct Session {
    int32_t length = 0;
    std::vector<int32_t> pages;
  };

  // Every slot of the cache is a NaN until it is written.
  static void Poison(const KvStore& kv, int32_t layers) {
    if (layers == 0) return;
    const KvLayerView first = kv.Layer(0);
    std::fill_n(first.base, kv.pages_total() * first.page_stride, uint16_t{0x7e00});
  }

  const HyperParameters hp_;
  std::vector<int32_t> free_pages_;
  std::map<int32_t, Session> sessions_;
  std::vector<std::unique_ptr<KvStore>> kv_;
  std::vector<std::unique_ptr<LlamaForward>> forwards_;
};

inline std::vector<int32_t> RandomTokens(size_t count, int32_t vocab, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % vocab);
  return tokens;
}

}  // namespace shardline::testing
