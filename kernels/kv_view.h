#pragma once

// One layer's keys and values as the kernels see them: f16, in pages of kPageTokens tokens.
//
//   page p, head h:  base + p * page_stride + h * head_halves()
//     keys    [head_dim][kPageTokens]   transposed, so that a vector lane is a token
//     values  [kPageTokens][head_dim]   plain, so that a vector lane is an element
//
// A head's keys and values of 16 tokens are one contiguous run. A session's tokens
// [16 i, 16 i + 16) are in page pages[i]. What lies at or beyond the committed length is garbage
// that no kernel lets reach a result, NaN included.

#include <cstdint>

#include "base/version.h"

namespace shardline {

struct KvLayerView {
  uint16_t* base = nullptr;  // Not owned.
  int64_t page_stride = 0;   // Halves between consecutive pages of this layer.
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // A multiple of 16, at most kAttentionHeadDimMax.

  int64_t head_halves() const { return int64_t{2} * kPageTokens * head_dim; }
  int64_t page_halves() const { return kv_heads * head_halves(); }
  uint16_t* keys(int32_t page, int32_t head) const {
    return base + page * page_stride + head * head_halves();
  }
  uint16_t* values(int32_t page, int32_t head) const {
    return keys(page, head) + int64_t{kPageTokens} * head_dim;
  }
};

inline constexpr int32_t kAttentionHeadDimMax = 256;

// Consecutive rows of a batch that are consecutive tokens of one session.
struct SequenceSlice {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t position = 0;            // Of first_row; absolute.
  const int32_t* pages = nullptr;  // Covers [0, position + row_count).
  int32_t kept_rows = 0;           // The first ones, whose slots others read and nobody writes.
};

}  // namespace shardline
