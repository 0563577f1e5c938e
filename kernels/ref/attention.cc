#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/flush_denormals.h"
#include "kernels/half.h"
#include "kernels/ref/arithmetic.h"

namespace shardline::ref {
namespace {

// One query head of one row.
struct Query {
  const float* q;        // [head_dim]
  const int32_t* pages;  // The session's page table.
  int32_t kv_head;
  int32_t tokens;  // Sees tokens [0, tokens).
};

// A softmax not yet divided: sum_t e^(s_t - maximum) v_t, and the same sum without v.
struct Partial {
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::vector<float> out;
};

float Score(const AttentionArgs& args, const Query& query, int32_t token) {
  const uint16_t* keys = args.kv.keys(query.pages[token / kPageTokens], query.kv_head);
  float dot = 0;
  for (int32_t d = 0; d < args.kv.head_dim; ++d) {
    dot = std::fma(query.q[d], HalfToFloat(keys[d * kPageTokens + token % kPageTokens]), dot);
  }
  return dot * args.scale;
}

// Takes tokens [begin, begin + count), one tile, into `partial`.
void AddTile(const AttentionArgs& args, const Query& query, int32_t begin, int32_t count,
             Partial& partial) {
  std::array<float, kAttentionTileTokens> weight{};
  float maximum = partial.maximum;
  for (int32_t t = 0; t < count; ++t) {
    weight[t] = Score(args, query, begin + t);
    maximum = std::max(weight[t], maximum);
  }
  const float correction = ExpNonPositive(partial.maximum - maximum);
  for (int32_t t = 0; t < count; ++t) weight[t] = ExpNonPositive(weight[t] - maximum);
  std::array<float, 16> lanes;
  for (int i = 0; i < 16; ++i) {
    lanes[i] = (weight[i] + weight[i + 16]) + (weight[i + 32] + weight[i + 48]);
  }
  partial.sum = std::fma(partial.sum, correction, SumLanes(lanes));
  for (int32_t d = 0; d < args.kv.head_dim; ++d) {
    float out = partial.out[d] * correction;
    for (int32_t t = 0; t < count; ++t) {
      const int32_t token = begin + t;
      const uint16_t* values = args.kv.values(query.pages[token / kPageTokens], query.kv_head);
      out = std::fma(weight[t], HalfToFloat(values[(token % kPageTokens) * args.kv.head_dim + d]),
                     out);
    }
    partial.out[d] = out;
  }
  partial.maximum = maximum;
}

Partial RunSplit(const AttentionArgs& args, const Query& query, int32_t begin) {
  Partial partial{.out = std::vector<float>(args.kv.head_dim)};
  const int32_t end = std::min(query.tokens, begin + kAttentionSplitTokens);
  for (int32_t tile = begin; tile < end; tile += kAttentionTileTokens) {
    AddTile(args, query, tile, std::min(kAttentionTileTokens, end - tile), partial);
  }
  return partial;
}

void Merge(const Partial& later, Partial& total) {
  const float maximum = std::max(later.maximum, total.maximum);
  const float keep = ExpNonPositive(total.maximum - maximum);
  const float take = ExpNonPositive(later.maximum - maximum);
  total.sum = std::fma(total.sum, keep, later.sum * take);
  for (size_t d = 0; d < total.out.size(); ++d) {
    total.out[d] = std::fma(total.out[d], keep, later.out[d] * take);
  }
  total.maximum = maximum;
}

void RunQuery(const AttentionArgs& args, const Query& query, float* out) {
  Partial total = RunSplit(args, query, 0);
  for (int32_t split = kAttentionSplitTokens; split < query.tokens;
       split += kAttentionSplitTokens) {
    Merge(RunSplit(args, query, split), total);
  }
  const float inverse = 1.0f / total.sum;
  for (int32_t d = 0; d < args.kv.head_dim; ++d) out[d] = total.out[d] * inverse;
}

}  // namespace

absl::Status Attention(const AttentionArgs& args, DeviceStream /*stream*/) {
  const ScopedFlushDenormals flush;
  const int32_t group = args.q_heads / args.kv.kv_heads;
  for (const SequenceSlice& slice : args.slices) {
    for (int32_t i = 0; i < slice.row_count; ++i) {
      const int64_t row = slice.first_row + i;
      for (int32_t head = 0; head < args.q_heads; ++head) {
        RunQuery(args,
                 Query{.q = args.q + row * args.q_stride + head * args.kv.head_dim,
                       .pages = slice.pages,
                       .kv_head = head / group,
                       .tokens = slice.position + i + 1},
                 args.out + row * args.out_stride + head * args.kv.head_dim);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
