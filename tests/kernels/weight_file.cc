#include "weight_file.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace shardline::testing {
namespace {

double HalfValue(const uint8_t* at) {
  const int bits = at[0] | at[1] << 8;
  const int exponent = bits >> 10 & 31;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(bits & 1023, -24);
  return sign * std::ldexp(1024 + (bits & 1023), exponent - 25);
}

// Where the f16 numbers of a block are, and how it is filled.
struct Shape {
  std::vector<int> halves;
};

Shape ShapeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
      return {{0, 2}};
    case WeightFormat::kQ6_K:
      return {{208}};
    default:
      return {{0}};
  }
}

uint16_t MakeHalf(Content content, bool zero, std::mt19937& random) {
  const auto low = static_cast<uint16_t>(random() & 0x83ff);  // Sign and mantissa.
  switch (content) {
    case Content::kZeroScale:
      if (zero) return 0;
      break;
    case Content::kDenormal:
      return low;
    case Content::kHuge:
      return static_cast<uint16_t>(low | 0x7800);
    default:
      break;
  }
  return static_cast<uint16_t>(low | (7 + random() % 3) << 10);  // 2^-8 .. 2^-5.
}

std::vector<std::byte> MakeFloats(WeightFormat format, int64_t count, Content content,
                                  std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * TraitsOf(format).block_bytes));
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (int64_t i = 0; i < count; ++i) {
    float value = normal(random);
    if (content == Content::kZeroScale && i % 2 == 0) value = 0;
    if (content == Content::kDenormal) value *= 1e-36f;
    if (content == Content::kHuge) value *= 1e5f;
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (format == WeightFormat::kBF16) bits >>= 16;
    if (format == WeightFormat::kF16) bits = MakeHalf(content, i % 2 == 0, random);
    const auto width = static_cast<size_t>(TraitsOf(format).block_bytes);
    std::memcpy(bytes.data() + static_cast<size_t>(i) * width, &bits, width);
  }
  return bytes;
}

int SixBitScale(const uint8_t* packed, int j, bool minimum) {
  if (j < 4) return packed[minimum ? j + 4 : j] & 63;
  const int low = minimum ? packed[j + 4] >> 4 : packed[j + 4] & 15;
  return low + (packed[minimum ? j : j - 4] >> 6) * 16;
}

double BlockValue(WeightFormat format, const uint8_t* b, int i) {
  const double d = HalfValue(b);
  const auto nibble = [i](const uint8_t* qs) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; };
  const auto fifth = [i](const uint8_t* qh) { return (qh[i / 8] >> (i % 8) & 1) * 16; };
  const auto sub_nibble = [i](const uint8_t* qs) {
    const uint8_t byte = qs[i / 64 * 32 + i % 32];
    return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
  };
  switch (format) {
    case WeightFormat::kQ8_0:
      return d * static_cast<int8_t>(b[2 + i]);
    case WeightFormat::kQ4_0:
      return d * (nibble(b + 2) - 8);
    case WeightFormat::kQ4_1:
      return d * nibble(b + 4) + HalfValue(b + 2);
    case WeightFormat::kQ5_0:
      return d * (nibble(b + 6) + fifth(b + 2) - 16);
    case WeightFormat::kQ5_1:
      return d * (nibble(b + 8) + fifth(b + 4)) + HalfValue(b + 2);
    case WeightFormat::kQ4_K:
      return d * SixBitScale(b + 4, i / 32, false) * sub_nibble(b + 16) -
             HalfValue(b + 2) * SixBitScale(b + 4, i / 32, true);
    case WeightFormat::kQ5_K:
      return d * SixBitScale(b + 4, i / 32, false) *
                 (sub_nibble(b + 48) + (b[16 + i % 32] >> (i / 32) & 1) * 16) -
             HalfValue(b + 2) * SixBitScale(b + 4, i / 32, true);
    case WeightFormat::kQ6_K: {
      const int in_half = i % 128;
      const uint8_t low = b[i / 128 * 64 + in_half % 64];
      const int four = in_half < 64 ? low & 15 : low >> 4;
      const int two = b[128 + i / 128 * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
      return HalfValue(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * (four + two * 16 - 32);
    }
    default:
      return 0;
  }
}

}  // namespace

int64_t RowBytes(WeightFormat format, int64_t k) {
  return k / TraitsOf(format).block_elements * TraitsOf(format).block_bytes;
}

std::vector<std::byte> MakeWeightFile(WeightFormat format, int64_t n, int64_t k, Content content,
                                      std::mt19937& random) {
  if (TraitsOf(format).block_elements == 1) return MakeFloats(format, n * k, content, random);
  std::vector<std::byte> bytes(static_cast<size_t>(n * RowBytes(format, k)));
  const auto block_bytes = static_cast<size_t>(TraitsOf(format).block_bytes);
  bool zero = false;
  for (size_t at = 0; at < bytes.size(); at += block_bytes, zero = !zero) {
    for (size_t i = 0; i < block_bytes; ++i) {
      unsigned value = random() & 255;
      // Q8_0's lowest is 0x80; in the others all bits clear are the lowest, all set the highest.
      if (content == Content::kLowest) value = random() % 4 == 0 ? 0xff : 0;
      if (content == Content::kLowest && format == WeightFormat::kQ8_0) {
        value = random() % 4 == 0 ? 0x7f : 0x80;
      }
      bytes[at + i] = static_cast<std::byte>(value);
    }
    for (int half : ShapeOf(format).halves) {
      const uint16_t bits = MakeHalf(content, zero, random);
      std::memcpy(bytes.data() + at + static_cast<size_t>(half), &bits, sizeof(bits));
    }
  }
  return bytes;
}

std::vector<double> DecodeRow(WeightFormat format, int64_t k, const std::byte* row) {
  std::vector<double> values(static_cast<size_t>(k));
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const WeightFormatTraits& traits = TraitsOf(format);
  for (int64_t i = 0; i < k; ++i) {
    const uint8_t* block = bytes + i / traits.block_elements * traits.block_bytes;
    double& value = values[static_cast<size_t>(i)];
    uint32_t bits = 0;
    switch (format) {
      case WeightFormat::kF32:
        std::memcpy(&bits, block, 4);
        break;
      case WeightFormat::kBF16:
        bits = static_cast<uint32_t>(block[0] | block[1] << 8) << 16;
        break;
      case WeightFormat::kF16:
        value = HalfValue(block);
        continue;
      default:
        value = BlockValue(format, block, static_cast<int>(i % traits.block_elements));
        continue;
    }
    value = static_cast<double>(std::bit_cast<float>(bits));
  }
  return values;
}

}  // namespace shardline::testing
