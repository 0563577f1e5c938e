#pragma once

// Causal grouped-query attention over the paged cache: a row at position p sees tokens [0, p].
//
// Reads keys and values from the cache only, so that prefill, chunked prefill and decode do the
// same arithmetic: tiles of 64 tokens anchored at position 0, online softmax inside splits of 512
// tokens, splits merged in ascending order. How rows are batched, which thread runs what and
// whether splits run in turn or side by side moves no bit (kernels/NUMERICS.md, "Attention").
// Query head h reads kv head h / (q_heads / kv_heads).

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "kernels/device_stream.h"
#include "kernels/kv_view.h"

namespace shardline {

inline constexpr int32_t kAttentionTileTokens = 64;
inline constexpr int32_t kAttentionSplitTokens = 512;

struct AttentionArgs {
  const float* q = nullptr;  // [rows, q_heads, head_dim], rows q_stride floats apart; rotated.
  float* out = nullptr;      // [rows, q_heads, head_dim], rows out_stride floats apart. Not q.
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int32_t q_heads = 0;  // A multiple of kv.kv_heads.
  float scale = 0;      // 1 / sqrt(head_dim), unless the model says otherwise.
  std::span<const SequenceSlice> slices;
  KvLayerView kv;  // Tokens of the slices' rows are already appended.

  // Room for the partial results of splits that run side by side; without it, or when it is too
  // small, one task runs the splits of its rows in turn.
  float* workspace = nullptr;
  int64_t workspace_floats = 0;
};

// Floats of workspace that let `rows` decode rows over `tokens_max` tokens run split by split.
int64_t AttentionWorkspaceFloats(int64_t rows, int64_t q_heads, int64_t head_dim,
                                 int64_t tokens_max);

namespace cpu {
absl::Status Attention(const AttentionArgs& args, DeviceStream stream);
}
namespace ref {
absl::Status Attention(const AttentionArgs& args, DeviceStream stream);
}

}  // namespace shardline
