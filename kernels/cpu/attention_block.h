#pragma once

// How the CPU cuts attention into tasks. The cut moves no bit of a result: each query is computed
// as if it were alone.

#include <cstdint>

#include "kernels/attention.h"

namespace shardline::cpu {

inline constexpr int32_t kQueriesMax = 16;

// Query heads that share a kv head, of a few consecutive rows of one session: query j is head
// j % head_count of row j / head_count, so that queries see ever more tokens.
struct AttentionBlock {
  const SequenceSlice* slice = nullptr;
  int32_t row_begin = 0;  // In the slice.
  int32_t row_count = 0;
  int32_t kv_head = 0;
  int32_t head_begin = 0;  // A query head of the model.
  int32_t head_count = 0;

  int32_t query_count() const { return row_count * head_count; }  // <= kQueriesMax
  int64_t row(int32_t query) const { return slice->first_row + row_begin + query / head_count; }
  int32_t head(int32_t query) const { return head_begin + query % head_count; }
  // Query sees tokens [0, tokens(query)).
  int32_t tokens(int32_t query) const {
    return slice->position + row_begin + query / head_count + 1;
  }
};

// A softmax not yet divided lies in memory as out[head_dim], maximum, sum.
inline int64_t PartialFloats(int32_t head_dim) { return int64_t{head_dim} + 2; }

}  // namespace shardline::cpu
