#pragma once

// Where everything lies in a panel of 16 weight rows ("panel-16"). Shared by the packer, the
// kernels and the reference; nothing else knows it.
//
// A panel is a sequence of records; a record is one or more blocks of K of all 16 rows, laid out
// as sections, each the same for the block j of the record:
//
//   super   [16] f16 scale, [16] f16 minimum   one a record, K-quants only
//   meta    per block                          scales, one a lane (see MetaKind)
//   high    per block, high_bytes              the bits above the low four
//   quants  per block                          low four bits, or whole bytes
//
// A *group* is 4 consecutive k of all 16 lanes: 64 bytes, byte lane * 4 + i being k = 4 * group +
// i. Bytes hold unsigned values; what to subtract (128, 8, 16, 32 or nothing) is in the traits.
//   8-bit quants     group g at 64 * g
//   low four bits    groups v and v + 4 share the bytes at 64 * v: low and high nibble
//   fifth bit        one 64-byte vector; bit g of a byte belongs to group g
//   bits five, six   two vectors u; field f (2 bits) of a byte belongs to group 4 * u + f
//
// Float formats have a record a k (f32, f16: one element a lane) or a k pair (bf16: the even k in
// the low half of a 32-bit word). Every record but those is whole cache lines.

#include <cstdint>

#include "kernels/weight_format.h"

namespace shardline::panel {

inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kBlock = 32;  // k of one activation block, whatever the weight format.

enum class MetaKind : uint8_t {
  kNone,
  kScale,     // f16 scale                                          32 bytes
  kScaleMin,  // f16 scale, f16 minimum                             64
  kSubMin,    // u8 scale, u8 minimum, in units of the super pair   32
  kSubPair,   // i8 scale of the block's first 16 k, of its last    32
};

struct Layout {
  int32_t record_k;      // k covered by a record.
  int32_t record_bytes;  // Of all 16 lanes.
  int32_t offset;        // Subtracted from the stored unsigned value.
  MetaKind meta;
  int32_t meta_at, meta_bytes;
  int32_t high_at, high_bytes;  // Per block: 0, 64 (fifth bit) or 128 (two bits).
  int32_t quants_at, quants_bytes;
};

constexpr Layout LayoutOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 64, 0, MetaKind::kNone, 0, 0, 0, 0, 0, 64};
    case WeightFormat::kF16:
      return {1, 32, 0, MetaKind::kNone, 0, 0, 0, 0, 0, 32};
    case WeightFormat::kBF16:
      return {2, 64, 0, MetaKind::kNone, 0, 0, 0, 0, 0, 64};
    case WeightFormat::kQ8_0:
      return {64, 1088, 128, MetaKind::kScale, 0, 32, 0, 0, 64, 512};
    case WeightFormat::kQ4_0:
      return {64, 576, 8, MetaKind::kScale, 0, 32, 0, 0, 64, 256};
    case WeightFormat::kQ4_1:
      return {32, 320, 0, MetaKind::kScaleMin, 0, 64, 0, 0, 64, 256};
    case WeightFormat::kQ5_0:
      return {64, 704, 16, MetaKind::kScale, 0, 32, 64, 64, 192, 256};
    case WeightFormat::kQ5_1:
      return {32, 384, 0, MetaKind::kScaleMin, 0, 64, 64, 64, 128, 256};
    case WeightFormat::kQ4_K:
      return {256, 2368, 0, MetaKind::kSubMin, 64, 32, 0, 0, 320, 256};
    case WeightFormat::kQ5_K:
      return {256, 2880, 0, MetaKind::kSubMin, 64, 32, 320, 64, 832, 256};
    case WeightFormat::kQ6_K:
      return {256, 3392, 32, MetaKind::kSubPair, 64, 32, 320, 128, 1344, 256};
  }
  return {};
}

constexpr bool IsQuantised(WeightFormat format) { return LayoutOf(format).meta != MetaKind::kNone; }

constexpr int64_t PanelCount(int64_t n) { return (n + kLanes - 1) / kLanes; }

constexpr int64_t PanelBytes(WeightFormat format, int64_t k) {
  const Layout layout = LayoutOf(format);
  const int64_t records = (k + layout.record_k - 1) / layout.record_k;
  return (records * layout.record_bytes + 63) / 64 * 64;
}

}  // namespace shardline::panel
