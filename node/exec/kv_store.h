#pragma once

// The bytes of a shard's KV: one allocation of equal pages, cut and touched at start-up, f16.
//
// Who owns which page is node/kv's business; here a page id is only an offset. A page holds
// kPageTokens tokens of every layer of the shard, layer by layer (kernels/kv_view.h).

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/kv_view.h"
#include "model/hyper_parameters.h"

namespace shardline {

class KvStore {
 public:
  // Fails with kKvExhausted, naming the bytes, when the memory cannot be had.
  // REQUIRES: layer_count >= 0, pages_total > 0.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(const HyperParameters& hp,
                                                         int32_t layer_count, int32_t pages_total);
  ~KvStore();

  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // The shard's layer `layer`, counted from 0.
  KvLayerView Layer(int32_t layer) const;

  int32_t pages_total() const { return pages_total_; }
  int64_t page_bytes() const { return page_bytes_; }

 private:
  KvStore(const KvLayerView& first_layer, int32_t layer_count, int32_t pages_total);

  const KvLayerView first_layer_;
  const int32_t layer_count_;
  const int32_t pages_total_;
  const int64_t page_bytes_;
};

}  // namespace shardline
