#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "kernels/cpu/panel_block.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/targets.h"
#include "kernels/flush_denormals.h"
#include "kernels/packed_weight.h"
#include "kernels/thread_pool.h"

namespace shardline {
namespace {

using panel::Block;
using panel::kBlock;
using panel::kLanes;

constexpr size_t kHugePageBytes = size_t{2} << 20;

std::byte* AllocatePanels(size_t bytes) {
  const size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : 64;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  SL_CHECK(data != nullptr, "panels of ", bytes, " bytes");
  if (alignment == kHugePageBytes) madvise(data, rounded, MADV_HUGEPAGE);  // A wish, no more.
  return static_cast<std::byte*>(data);
}

uint16_t Load16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The layouts below are those of the GGUF tensor types of the same names.

// Two nibbles a byte: elements 0..15 low, 16..31 high; the fifth bits, if any, as a 32-bit word.
void DecodeNibbles(const uint8_t* nibbles, uint32_t fifth, Block& out) {
  for (int j = 0; j < 16; ++j) {
    out.quants[j] = static_cast<uint8_t>((nibbles[j] & 15) | (fifth >> j & 1) << 4);
    out.quants[j + 16] = static_cast<uint8_t>(nibbles[j] >> 4 | (fifth >> (j + 16) & 1) << 4);
  }
}

// Sub-block j's 6-bit scale and minimum, packed into 12 bytes for eight of them.
void DecodeSubMin(const uint8_t* packed, int j, Block& out) {
  unsigned scale = 0;
  unsigned minimum = 0;
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
    minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
  }
  out.sub[0] = out.sub[1] = static_cast<int8_t>(scale);
  out.sub_m = static_cast<uint8_t>(minimum);
}

// 32 elements of sub-block j from the nibbles of a 256-block: 64 elements share 32 bytes.
void DecodeSubNibbles(const uint8_t* nibbles, const uint8_t* fifth, int j, Block& out) {
  const uint8_t* bytes = nibbles + j / 2 * 32;
  for (int k = 0; k < 32; ++k) {
    unsigned q = j % 2 == 0 ? bytes[k] & 15u : bytes[k] >> 4;
    if (fifth != nullptr) q |= (fifth[k] >> j & 1u) << 4;
    out.quants[k] = static_cast<uint8_t>(q);
  }
}

void DecodeQ6K(const uint8_t* file, int j, Block& out) {
  const uint8_t* low = file + j / 4 * 64 + j % 2 * 32;
  const uint8_t* high = file + 128 + j / 4 * 32;
  const uint8_t* scales = file + 192;
  const int quarter = j % 4;  // Of a half of 128: low nibbles, low, high, high.
  for (int k = 0; k < 32; ++k) {
    const unsigned nibble = quarter < 2 ? low[k] & 15u : low[k] >> 4;
    out.quants[k] = static_cast<uint8_t>(nibble | (high[k] >> (2 * quarter) & 3u) << 4);
  }
  out.d = Load16(file + 208);
  out.sub[0] = static_cast<int8_t>(scales[2 * j]);
  out.sub[1] = static_cast<int8_t>(scales[2 * j + 1]);
}

// 32-element block j of the file block at `file`.
Block DecodeBlock(WeightFormat format, const uint8_t* file, int j) {
  Block out = {.sub = {1, 1}};
  out.d = Load16(file);
  uint32_t fifth = 0;
  switch (format) {
    case WeightFormat::kQ8_0:
      for (int k = 0; k < 32; ++k) out.quants[k] = static_cast<uint8_t>(file[2 + k] ^ 0x80);
      break;
    case WeightFormat::kQ4_0:
      DecodeNibbles(file + 2, 0, out);
      break;
    case WeightFormat::kQ4_1:
      out.m = Load16(file + 2);
      DecodeNibbles(file + 4, 0, out);
      break;
    case WeightFormat::kQ5_0:
      std::memcpy(&fifth, file + 2, sizeof(fifth));
      DecodeNibbles(file + 6, fifth, out);
      break;
    case WeightFormat::kQ5_1:
      out.m = Load16(file + 2);
      std::memcpy(&fifth, file + 4, sizeof(fifth));
      DecodeNibbles(file + 8, fifth, out);
      break;
    case WeightFormat::kQ4_K:
      out.m = Load16(file + 2);
      DecodeSubMin(file + 4, j, out);
      DecodeSubNibbles(file + 16, nullptr, j, out);
      break;
    case WeightFormat::kQ5_K:
      out.m = Load16(file + 2);
      DecodeSubMin(file + 4, j, out);
      DecodeSubNibbles(file + 48, file + 16, j, out);
      break;
    case WeightFormat::kQ6_K:
      DecodeQ6K(file, j, out);
      break;
    default:
      SL_CHECK(false, "not a quantised format");
  }
  return out;
}

void PackQuantisedLane(WeightFormat format, int64_t k, const uint8_t* row, int64_t lane,
                       std::byte* to) {
  const WeightFormatTraits& traits = TraitsOf(format);
  const int per_file_block = traits.block_elements / static_cast<int>(kBlock);
  for (int64_t block = 0; block < k / kBlock; ++block) {
    const uint8_t* file = row + block / per_file_block * traits.block_bytes;
    const Block value = DecodeBlock(format, file, static_cast<int>(block % per_file_block));
    panel::WriteBlock(format, block, lane, value, to);
  }
}

void PackFloatLane(WeightFormat format, int64_t k, const uint8_t* row, int64_t lane,
                   std::byte* to) {
  const panel::Layout layout = panel::LayoutOf(format);
  const int64_t bytes = TraitsOf(format).block_bytes;
  for (int64_t i = 0; i < k; ++i) {
    std::byte* word = to + i / layout.record_k * layout.record_bytes +
                      lane * bytes * layout.record_k + i % layout.record_k * bytes;
    std::memcpy(word, row + i * bytes, static_cast<size_t>(bytes));
  }
}

absl::Status CheckShape(WeightFormat format, int64_t n, int64_t k, size_t file_bytes) {
  const WeightFormatTraits& traits = TraitsOf(format);
  const std::string name(traits.name);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (n <= 0 || n > kMost || k <= 0 || k > kMost) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("pack ", name, " weight: shape [", n, ", ", k, "]"));
  }
  if (k % traits.block_elements != 0) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("pack ", name, " weight: k = ", k, " is not whole blocks of ",
                                    traits.block_elements, " elements"));
  }
  const uint64_t row_bytes =
      static_cast<uint64_t>(k / traits.block_elements) * static_cast<uint64_t>(traits.block_bytes);
  const uint64_t expected = row_bytes * static_cast<uint64_t>(n);
  if (expected / static_cast<uint64_t>(n) != row_bytes || file_bytes != expected) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("pack ", name, " weight [", n, ", ", k, "]: ", file_bytes,
                                    " bytes, expected ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

void PackedWeight::Free::operator()(std::byte* data) const { std::free(data); }

absl::StatusOr<PackedWeight> PackWeight(WeightFormat format, int64_t n, int64_t k,
                                        std::span<const std::byte> file_bytes,
                                        DeviceStream stream) {
  SL_RETURN_IF_ERROR(cpu::CheckCpu());
  SL_RETURN_IF_ERROR(CheckShape(format, n, k, file_bytes.size()));
  PackedWeight packed;
  packed.format_ = format;
  packed.n_ = n;
  packed.k_ = k;
  packed.panel_count_ = panel::PanelCount(n);
  packed.panel_bytes_ = panel::PanelBytes(format, k);
  packed.data_.reset(AllocatePanels(static_cast<size_t>(packed.bytes())));

  const auto* rows = reinterpret_cast<const uint8_t*>(file_bytes.data());
  const int64_t row_bytes = k / TraitsOf(format).block_elements * TraitsOf(format).block_bytes;
  auto pack_panel = [&](int64_t index) {
    std::byte* to = packed.data_.get() + index * packed.panel_bytes_;
    std::memset(to, 0, static_cast<size_t>(packed.panel_bytes_));
    for (int64_t lane = 0; lane < std::min(kLanes, n - index * kLanes); ++lane) {
      const uint8_t* row = rows + (index * kLanes + lane) * row_bytes;
      if (panel::IsQuantised(format)) {
        PackQuantisedLane(format, k, row, lane, to);
      } else {
        PackFloatLane(format, k, row, lane, to);
      }
    }
  };
  if (stream.pool != nullptr) {
    stream.pool->ParallelFor(packed.panel_count_, pack_panel);
  } else {
    for (int64_t index = 0; index < packed.panel_count_; ++index) pack_panel(index);
  }
  return packed;
}

void DequantizeRow(const PackedWeight& weight, int64_t row, float* out) {
  SL_CHECK(row >= 0);
  SL_CHECK(row < weight.n());
  const ScopedFlushDenormals flush;
  const std::byte* from = weight.panel(row / kLanes);
  const int64_t lane = row % kLanes;
  if (!panel::IsQuantised(weight.format())) {
    for (int64_t k = 0; k < weight.k(); ++k) {
      out[k] = panel::ReadFloat(weight.format(), k, lane, from);
    }
    return;
  }
  const panel::Layout layout = panel::LayoutOf(weight.format());
  for (int64_t b = 0; b < weight.k() / kBlock; ++b) {
    const Block block = panel::ReadBlock(weight.format(), b, lane, from);
    const float d = panel::FloatOfF16(block.d);
    const float m = panel::FloatOfF16(block.m);
    float minimum = m;
    if (layout.meta == panel::MetaKind::kSubMin) minimum = -(m * block.sub_m);
    const bool has_minimum =
        layout.meta == panel::MetaKind::kSubMin || layout.meta == panel::MetaKind::kScaleMin;
    for (int64_t i = 0; i < kBlock; ++i) {
      const float scale = d * block.sub[i / 16];
      const float value = scale * static_cast<float>(block.quants[i] - layout.offset);
      out[b * kBlock + i] = has_minimum ? value + minimum : value;
    }
  }
}

}  // namespace shardline
