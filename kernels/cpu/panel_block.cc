#include "kernels/cpu/panel_block.h"

#include <bit>
#include <cstring>

#include "kernels/cpu/panel_layout.h"

namespace shardline::panel {
namespace {

// Addresses of one block's sections in its record.
template <typename Byte>
struct Sections {
  Sections(WeightFormat format, int64_t block, Byte* panel) : layout(LayoutOf(format)) {
    const int64_t per_record = layout.record_k / kBlock;
    const int64_t j = block % per_record;
    record = panel + block / per_record * layout.record_bytes;
    meta = record + layout.meta_at + j * layout.meta_bytes;
    high = record + layout.high_at + j * layout.high_bytes;
    quants = record + layout.quants_at + j * layout.quants_bytes;
  }

  Layout layout;
  Byte* record;
  Byte* meta;
  Byte* high;
  Byte* quants;
};

void Store16(uint16_t value, std::byte* to) { std::memcpy(to, &value, sizeof(value)); }

uint16_t Load16(const std::byte* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

void WriteBlock(WeightFormat format, int64_t block, int64_t lane, const Block& value,
                std::byte* panel) {
  const Sections<std::byte> at(format, block, panel);
  switch (at.layout.meta) {
    case MetaKind::kNone:
      break;
    case MetaKind::kScaleMin:
      Store16(value.m, at.meta + 32 + 2 * lane);
      [[fallthrough]];
    case MetaKind::kScale:
      Store16(value.d, at.meta + 2 * lane);
      break;
    case MetaKind::kSubMin:
      Store16(value.d, at.record + 2 * lane);
      Store16(value.m, at.record + 32 + 2 * lane);
      at.meta[lane] = static_cast<std::byte>(value.sub[0]);
      at.meta[16 + lane] = static_cast<std::byte>(value.sub_m);
      break;
    case MetaKind::kSubPair:
      Store16(value.d, at.record + 2 * lane);
      at.meta[lane] = static_cast<std::byte>(value.sub[0]);
      at.meta[16 + lane] = static_cast<std::byte>(value.sub[1]);
      break;
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    const int64_t group = k / 4;
    const int64_t byte = lane * 4 + k % 4;
    const unsigned q = value.quants[k];
    if (at.layout.quants_bytes == 512) {
      at.quants[64 * group + byte] = static_cast<std::byte>(q);
      continue;
    }
    at.quants[64 * (group % 4) + byte] |= static_cast<std::byte>((q & 15) << (group / 4 * 4));
    if (at.layout.high_bytes == 64) {
      at.high[byte] |= static_cast<std::byte>((q >> 4) << group);
    } else if (at.layout.high_bytes == 128) {
      at.high[64 * (group / 4) + byte] |= static_cast<std::byte>((q >> 4) << (group % 4 * 2));
    }
  }
}

Block ReadBlock(WeightFormat format, int64_t block, int64_t lane, const std::byte* panel) {
  const Sections<const std::byte> at(format, block, panel);
  Block value = {.sub = {1, 1}};
  switch (at.layout.meta) {
    case MetaKind::kNone:
      break;
    case MetaKind::kScaleMin:
      value.m = Load16(at.meta + 32 + 2 * lane);
      [[fallthrough]];
    case MetaKind::kScale:
      value.d = Load16(at.meta + 2 * lane);
      break;
    case MetaKind::kSubMin:
      value.d = Load16(at.record + 2 * lane);
      value.m = Load16(at.record + 32 + 2 * lane);
      value.sub[0] = value.sub[1] = static_cast<int8_t>(at.meta[lane]);
      value.sub_m = static_cast<uint8_t>(at.meta[16 + lane]);
      break;
    case MetaKind::kSubPair:
      value.d = Load16(at.record + 2 * lane);
      value.sub[0] = static_cast<int8_t>(at.meta[lane]);
      value.sub[1] = static_cast<int8_t>(at.meta[16 + lane]);
      break;
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    const int64_t group = k / 4;
    const int64_t byte = lane * 4 + k % 4;
    if (at.layout.quants_bytes == 512) {
      value.quants[k] = static_cast<uint8_t>(at.quants[64 * group + byte]);
      continue;
    }
    unsigned q = static_cast<unsigned>(at.quants[64 * (group % 4) + byte]) >> (group / 4 * 4) & 15;
    if (at.layout.high_bytes == 64) {
      q |= (static_cast<unsigned>(at.high[byte]) >> group & 1) << 4;
    } else if (at.layout.high_bytes == 128) {
      const auto high = static_cast<unsigned>(at.high[64 * (group / 4) + byte]);
      q |= (high >> (group % 4 * 2) & 3) << 4;
    }
    value.quants[k] = static_cast<uint8_t>(q);
  }
  return value;
}

float ReadFloat(WeightFormat format, int64_t k, int64_t lane, const std::byte* panel) {
  const Layout layout = LayoutOf(format);
  const std::byte* record = panel + k / layout.record_k * layout.record_bytes;
  switch (format) {
    case WeightFormat::kF32: {
      float value;
      std::memcpy(&value, record + 4 * lane, sizeof(value));
      return value;
    }
    case WeightFormat::kF16:
      return FloatOfF16(Load16(record + 2 * lane));
    default: {
      const uint16_t bits = Load16(record + 4 * lane + 2 * (k % 2));
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
  }
}

float FloatOfF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | mantissa << 13);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A denormal half is an ordinary float: shift its first one bit into the hidden place.
  const int shift = std::countl_zero(mantissa) - 21;
  mantissa = mantissa << shift & 0x3ff;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(113 - shift) << 23 | mantissa << 13);
}

}  // namespace shardline::panel
