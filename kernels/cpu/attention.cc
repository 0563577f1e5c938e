#include "kernels/attention.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

inline constexpr int32_t kTile = kAttentionTileTokens;
inline constexpr int32_t kTilePages = kTile / kPageTokens;
inline constexpr int32_t kTogether = 4;  // Queries that share one load of keys or values.
// Groups of 16 lanes that fit in registers beside each other for kTogether queries.
inline constexpr int32_t kGroups = kWidth == 16 ? 4 : 1;

// One tile of the cache, and where its 16-token groups lie.
struct Tile {
  const uint16_t* keys[kTilePages];
  const uint16_t* values[kTilePages];
};

HWY_INLINE float ScalarMulAdd(float a, float b, float c) {
  const FloatTag d;
  return hn::GetLane(hn::MulAdd(hn::Set(d, a), hn::Set(d, b), hn::Set(d, c)));
}

// scores[q][16 g ...] = (q . k) * scale for token groups [first, first + kG): a lane is a token,
// elements are walked in order.
template <int32_t kQ, int32_t kG>
HWY_INLINE void ScoreGroups(const float* const* q, const uint16_t* const* keys, int32_t dim,
                            float scale, float (*scores)[kTile], int32_t first) {
  Lanes dot[kQ][kG];
  for (int32_t i = 0; i < kQ; ++i) {
    for (int32_t g = 0; g < kG; ++g) dot[i][g] = ZeroLanes();
  }
  for (int32_t d = 0; d < dim; ++d) {
    Lanes k[kG];
    for (int32_t g = 0; g < kG; ++g) k[g] = LoadHalfLanes(keys[first + g] + d * kPageTokens);
    for (int32_t i = 0; i < kQ; ++i) {
      const Lanes element = SetLanes(q[i][d]);
      for (int32_t g = 0; g < kG; ++g) dot[i][g] = MulAdd(element, k[g], dot[i][g]);
    }
  }
  const Lanes factor = SetLanes(scale);
  for (int32_t i = 0; i < kQ; ++i) {
    for (int32_t g = 0; g < kG; ++g) {
      StoreLanes(Mul(dot[i][g], factor), scores[i] + (first + g) * kPageTokens);
    }
  }
}

template <int32_t kQ>
HWY_INLINE void ScoreTile(const float* const* q, const Tile& tile, int32_t pages, int32_t dim,
                          float scale, float (*scores)[kTile]) {
  int32_t first = 0;
  for (; first + kGroups <= pages; first += kGroups) {
    ScoreGroups<kQ, kGroups>(q, tile.keys, dim, scale, scores, first);
  }
  for (; first < pages; ++first) ScoreGroups<kQ, 1>(q, tile.keys, dim, scale, scores, first);
}

// Turns the scores of `count` tokens into weights e^(s - maximum), updates maximum and sum, and
// returns what the sum so far was multiplied by. Lanes past `count` may hold anything.
HWY_INLINE float WeighTile(float* scores, int32_t count, float& maximum, float& sum) {
  const FloatTag d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Lanes score[kTilePages];
  Lanes highest = SetLanes(maximum);
  for (int32_t g = 0; g < kTilePages; ++g) {
    for (size_t i = 0; i < kParts; ++i) {
      const int32_t begin = g * kPageTokens + static_cast<int32_t>(i * kWidth);
      const size_t valid = count <= begin ? 0 : static_cast<size_t>(count - begin);
      const auto mask = hn::FirstN(d, valid < kWidth ? valid : kWidth);
      score[g].part[i] = hn::IfThenElse(mask, hn::LoadU(d, scores + begin), lowest);
    }
    highest = Max(highest, score[g]);
  }
  const float next = MaxLanes16(highest);
  const float correction = ExpNonPositive(maximum - next);
  const FloatVec shift = hn::Set(d, next);
  for (int32_t g = 0; g < kTilePages; ++g) {
    for (size_t i = 0; i < kParts; ++i) {
      const int32_t begin = g * kPageTokens + static_cast<int32_t>(i * kWidth);
      const size_t valid = count <= begin ? 0 : static_cast<size_t>(count - begin);
      const auto mask = hn::FirstN(d, valid < kWidth ? valid : kWidth);
      score[g].part[i] = hn::IfThenElseZero(mask, ExpNonPositive(hn::Sub(score[g].part[i], shift)));
    }
    StoreLanes(score[g], scores + g * kPageTokens);
  }
  const Lanes weights = Add(Add(score[0], score[1]), Add(score[2], score[3]));
  sum = ScalarMulAdd(sum, correction, SumLanes(weights));
  maximum = next;
  return correction;
}

// out[q][16 g ...] = out * correction, then += weight * value token by token over [begin, end).
template <int32_t kQ, int32_t kG>
HWY_INLINE void AddValueGroups(const float (*weights)[kTile], const float* corrections,
                               const Tile& tile, int32_t begin, int32_t end, int32_t dim,
                               int32_t first, float* const* out) {
  Lanes sum[kQ][kG];
  for (int32_t i = 0; i < kQ; ++i) {
    const Lanes correction = SetLanes(corrections[i]);
    for (int32_t g = 0; g < kG; ++g) {
      sum[i][g] = Mul(LoadLanes(out[i] + first + g * 16), correction);
    }
  }
  for (int32_t t = begin; t < end; ++t) {
    const uint16_t* value = tile.values[t / kPageTokens] + (t % kPageTokens) * int64_t{dim} + first;
    Lanes v[kG];
    for (int32_t g = 0; g < kG; ++g) v[g] = LoadHalfLanes(value + g * 16);
    for (int32_t i = 0; i < kQ; ++i) {
      const Lanes weight = SetLanes(weights[i][t]);
      for (int32_t g = 0; g < kG; ++g) sum[i][g] = MulAdd(weight, v[g], sum[i][g]);
    }
  }
  for (int32_t i = 0; i < kQ; ++i) {
    for (int32_t g = 0; g < kG; ++g) StoreLanes(sum[i][g], out[i] + first + g * 16);
  }
}

template <int32_t kQ>
HWY_INLINE void AddValues(const float (*weights)[kTile], const float* corrections, const Tile& tile,
                          int32_t begin, int32_t end, int32_t dim, float* const* out) {
  int32_t first = 0;
  for (; first + kGroups * 16 <= dim; first += kGroups * 16) {
    AddValueGroups<kQ, kGroups>(weights, corrections, tile, begin, end, dim, first, out);
  }
  for (; first < dim; first += 16) {
    AddValueGroups<kQ, 1>(weights, corrections, tile, begin, end, dim, first, out);
  }
}

// Takes one tile into the partials of queries [first, first + kQ) of the block.
template <int32_t kQ>
HWY_INLINE void AddTile(const AttentionArgs& args, const AttentionBlock& block, const Tile& tile,
                        int32_t tile_begin, int32_t first, float* const* partials) {
  const int32_t dim = args.kv.head_dim;
  const float* q[kQ];
  int32_t counts[kQ];
  for (int32_t i = 0; i < kQ; ++i) {
    const int32_t query = first + i;
    q[i] = args.q + block.row(query) * args.q_stride + int64_t{block.head(query)} * dim;
    const int32_t seen = block.tokens(query) - tile_begin;
    counts[i] = seen < 0 ? 0 : (seen < kTile ? seen : kTile);
  }
  if (counts[kQ - 1] == 0) return;  // Later queries see more.
  const int32_t pages = (counts[kQ - 1] + kPageTokens - 1) / kPageTokens;
  alignas(64) float weights[kQ][kTile];
  ScoreTile<kQ>(q, tile, pages, dim, args.scale, weights);
  float corrections[kQ];
  for (int32_t i = 0; i < kQ; ++i) {
    corrections[i] = 1.0f;  // Multiplying by one is exact: a query that sees nothing is unmoved.
    if (counts[i] == 0) continue;
    float* partial = partials[first + i];
    corrections[i] = WeighTile(weights[i], counts[i], partial[dim], partial[dim + 1]);
  }
  AddValues<kQ>(weights, corrections, tile, 0, counts[0], dim, partials + first);
  for (int32_t i = 1; i < kQ; ++i) {
    if (counts[i] == counts[0]) continue;
    const float one = 1.0f;
    AddValues<1>(weights + i, &one, tile, counts[0], counts[i], dim, partials + first + i);
  }
}

// Computes the partials of one split, from zero, for the block's queries that reach into it.
// REQUIRES: the last query does.
void RunSplit(const AttentionArgs& args, const AttentionBlock& block, int32_t split_begin,
              float* const* partials) {
  const int32_t dim = args.kv.head_dim;
  const int32_t queries = block.query_count();
  for (int32_t j = 0; j < queries; ++j) {
    for (int32_t d = 0; d < dim; ++d) partials[j][d] = 0;
    partials[j][dim] = -std::numeric_limits<float>::infinity();
    partials[j][dim + 1] = 0;
  }
  const int32_t tokens = block.tokens(queries - 1);
  const int32_t split_end = split_begin + kAttentionSplitTokens;
  const int32_t end = tokens < split_end ? tokens : split_end;
  for (int32_t begin = split_begin; begin < end; begin += kTile) {
    Tile tile = {};
    for (int32_t page = 0; page < kTilePages && begin + page * kPageTokens < end; ++page) {
      const int32_t id = block.slice->pages[begin / kPageTokens + page];
      tile.keys[page] = args.kv.keys(id, block.kv_head);
      tile.values[page] = args.kv.values(id, block.kv_head);
    }
    int32_t j = 0;
    for (; j + kTogether <= queries; j += kTogether) {
      AddTile<kTogether>(args, block, tile, begin, j, partials);
    }
    switch (queries - j) {
      case 3:
        AddTile<3>(args, block, tile, begin, j, partials);
        break;
      case 2:
        AddTile<2>(args, block, tile, begin, j, partials);
        break;
      case 1:
        AddTile<1>(args, block, tile, begin, j, partials);
        break;
      default:
        break;
    }
  }
}

// total = total and `later`, which covers the next tokens.
void MergePartial(int32_t dim, const float* later, float* total) {
  const float maximum = later[dim] > total[dim] ? later[dim] : total[dim];
  const float keep = ExpNonPositive(total[dim] - maximum);
  const float take = ExpNonPositive(later[dim] - maximum);
  total[dim + 1] = ScalarMulAdd(total[dim + 1], keep, later[dim + 1] * take);
  total[dim] = maximum;
  const Lanes keep_lanes = SetLanes(keep);
  const Lanes take_lanes = SetLanes(take);
  for (int32_t d = 0; d < dim; d += 16) {
    StoreLanes(MulAdd(LoadLanes(total + d), keep_lanes, Mul(LoadLanes(later + d), take_lanes)),
               total + d);
  }
}

void WriteResult(int32_t dim, const float* total, float* out) {
  const Lanes inverse = SetLanes(1.0f / total[dim + 1]);
  for (int32_t d = 0; d < dim; d += 16) StoreLanes(Mul(LoadLanes(total + d), inverse), out + d);
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/check.h"

namespace shardline::cpu {
namespace {

HWY_EXPORT(RunSplit);
HWY_EXPORT(MergePartial);
HWY_EXPORT(WriteResult);

// The blocks of a call, numbered; no list of them is kept.
class BlockPlan {
 public:
  explicit BlockPlan(const AttentionArgs& args) : args_(args) {
    const int32_t group = args.q_heads / args.kv.kv_heads;
    chunks_ = (group + kQueriesMax - 1) / kQueriesMax;
    heads_per_chunk_ = (group + chunks_ - 1) / chunks_;
    rows_per_block_ = kQueriesMax / heads_per_chunk_;
    for (const SequenceSlice& slice : args.slices) {
      block_count_ += BlocksOf(slice);
      rows_end_ = std::max<int64_t>(rows_end_, slice.first_row + slice.row_count);
      tokens_max_ = std::max(tokens_max_, slice.position + slice.row_count);
    }
  }

  int64_t block_count() const { return block_count_; }
  int64_t rows_end() const { return rows_end_; }
  int32_t split_count() const {
    return (tokens_max_ + kAttentionSplitTokens - 1) / kAttentionSplitTokens;
  }

  AttentionBlock Block(int64_t index) const {
    for (const SequenceSlice& slice : args_.slices) {
      if (index >= BlocksOf(slice)) {
        index -= BlocksOf(slice);
        continue;
      }
      const int32_t group = args_.q_heads / args_.kv.kv_heads;
      const int32_t per_rows = args_.kv.kv_heads * chunks_;
      const int32_t rows_index = static_cast<int32_t>(index / per_rows);
      const int32_t kv_head = static_cast<int32_t>(index % per_rows) / chunks_;
      const int32_t head_begin = static_cast<int32_t>(index % chunks_) * heads_per_chunk_;
      const int32_t row_begin = rows_index * rows_per_block_;
      return AttentionBlock{.slice = &slice,
                            .row_begin = row_begin,
                            .row_count = std::min(rows_per_block_, slice.row_count - row_begin),
                            .kv_head = kv_head,
                            .head_begin = kv_head * group + head_begin,
                            .head_count = std::min(heads_per_chunk_, group - head_begin)};
    }
    SL_CHECK(false, "attention block out of range");
    return {};
  }

 private:
  int64_t BlocksOf(const SequenceSlice& slice) const {
    return int64_t{(slice.row_count + rows_per_block_ - 1) / rows_per_block_} * args_.kv.kv_heads *
           chunks_;
  }

  const AttentionArgs& args_;
  int32_t chunks_ = 1;
  int32_t heads_per_chunk_ = 1;
  int32_t rows_per_block_ = 1;
  int64_t block_count_ = 0;
  int64_t rows_end_ = 0;
  int32_t tokens_max_ = 0;
};

float* OutputOf(const AttentionArgs& args, const AttentionBlock& block, int32_t query) {
  return args.out + block.row(query) * args.out_stride +
         int64_t{block.head(query)} * args.kv.head_dim;
}

// All splits of a block, in turn, on this thread.
void RunBlock(const AttentionArgs& args, const AttentionBlock& block) {
  alignas(64) float memory[2][kQueriesMax][kAttentionHeadDimMax + 2];
  float* totals[kQueriesMax];
  float* partials[kQueriesMax];
  const int32_t queries = block.query_count();
  for (int32_t j = 0; j < queries; ++j) {
    totals[j] = memory[0][j];
    partials[j] = memory[1][j];
  }
  HWY_DYNAMIC_DISPATCH(RunSplit)(args, block, 0, totals);
  for (int32_t begin = kAttentionSplitTokens; begin < block.tokens(queries - 1);
       begin += kAttentionSplitTokens) {
    HWY_DYNAMIC_DISPATCH(RunSplit)(args, block, begin, partials);
    for (int32_t j = 0; j < queries; ++j) {
      if (block.tokens(j) <= begin) continue;
      HWY_DYNAMIC_DISPATCH(MergePartial)(args.kv.head_dim, partials[j], totals[j]);
    }
  }
  for (int32_t j = 0; j < queries; ++j) {
    HWY_DYNAMIC_DISPATCH(WriteResult)(args.kv.head_dim, totals[j], OutputOf(args, block, j));
  }
}

float* WorkspaceOf(const AttentionArgs& args, const AttentionBlock& block, int32_t query,
                   int32_t split, int32_t split_count) {
  const int64_t index = (block.row(query) * args.q_heads + block.head(query)) * split_count + split;
  return args.workspace + index * PartialFloats(args.kv.head_dim);
}

// Splits side by side, then merged in ascending order: the arithmetic of RunBlock.
void RunSideBySide(const AttentionArgs& args, const BlockPlan& plan, DeviceStream stream) {
  const int32_t splits = plan.split_count();
  RunTasks(stream, plan.block_count() * splits, [&](int64_t task) {
    const AttentionBlock block = plan.Block(task / splits);
    const int32_t split = static_cast<int32_t>(task % splits);
    const int32_t queries = block.query_count();
    if (block.tokens(queries - 1) <= split * kAttentionSplitTokens) return;
    float* partials[kQueriesMax];
    for (int32_t j = 0; j < queries; ++j) {
      partials[j] = WorkspaceOf(args, block, j, split, splits);
    }
    HWY_DYNAMIC_DISPATCH(RunSplit)(args, block, split * kAttentionSplitTokens, partials);
  });
  RunTasks(stream, plan.block_count(), [&](int64_t task) {
    const AttentionBlock block = plan.Block(task);
    for (int32_t j = 0; j < block.query_count(); ++j) {
      float* total = WorkspaceOf(args, block, j, 0, splits);
      for (int32_t s = 1; s * kAttentionSplitTokens < block.tokens(j); ++s) {
        HWY_DYNAMIC_DISPATCH(MergePartial)
        (args.kv.head_dim, WorkspaceOf(args, block, j, s, splits), total);
      }
      HWY_DYNAMIC_DISPATCH(WriteResult)(args.kv.head_dim, total, OutputOf(args, block, j));
    }
  });
}

// Few blocks and long contexts: splits are worth a second fork and join.
bool WorthSideBySide(const AttentionArgs& args, const BlockPlan& plan, DeviceStream stream) {
  if (stream.pool == nullptr || args.workspace == nullptr || plan.split_count() < 2) return false;
  if (plan.block_count() >= int64_t{4} * stream.pool->thread_count()) return false;
  return plan.rows_end() * args.q_heads * plan.split_count() * PartialFloats(args.kv.head_dim) <=
         args.workspace_floats;
}

}  // namespace

absl::Status Attention(const AttentionArgs& args, DeviceStream stream) {
  SL_CHECK(args.kv.kv_heads > 0);
  SL_CHECK(args.q_heads % args.kv.kv_heads == 0, args.q_heads, " over ", args.kv.kv_heads);
  SL_CHECK(args.kv.head_dim % 16 == 0, "head_dim ", args.kv.head_dim);
  SL_CHECK(args.kv.head_dim <= kAttentionHeadDimMax, "head_dim ", args.kv.head_dim);
  const BlockPlan plan(args);
  if (WorthSideBySide(args, plan, stream)) {
    RunSideBySide(args, plan, stream);
    return absl::OkStatus();
  }
  RunTasks(stream, plan.block_count(), [&](int64_t task) { RunBlock(args, plan.Block(task)); });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
