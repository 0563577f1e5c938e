#include "model/grammar/code_points.h"

#include <algorithm>
#include <array>

namespace shardline {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;

size_t EncodedBytes(uint32_t code_point) {
  if (code_point <= 0x7F) return 1;
  if (code_point <= 0x7FF) return 2;
  return code_point <= 0xFFFF ? 3 : 4;
}

void Encode(uint32_t code_point, size_t bytes, std::array<uint8_t, 4>* out) {
  constexpr std::array<uint32_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = bytes; i-- > 1;) {
    (*out)[i] = static_cast<uint8_t>(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  (*out)[0] = static_cast<uint8_t>(kLead[bytes] | code_point);
}

// Where `range` must be cut so that both parts are nearer to a sequence: the last of the first
// part. `range.high` if it is one already.
uint32_t CutOf(const CodePointRange& range) {
  for (const uint32_t last : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (range.low <= last && last < range.high) return last;
  }
  if (range.high <= 0x7F) return range.high;
  for (const uint32_t mask : {0x3FU, 0xFFFU, 0x3FFFFU}) {
    if ((range.low & ~mask) == (range.high & ~mask)) continue;
    if ((range.low & mask) != 0) return range.low | mask;
    if ((range.high & mask) != mask) return (range.high & ~mask) - 1;
  }
  return range.high;
}

}  // namespace

CodePoints Normalised(CodePoints set) {
  std::erase_if(set, [](const CodePointRange& range) {
    return range.low > range.high || range.low > kCodePointMax;
  });
  std::sort(set.begin(), set.end(), [](const CodePointRange& a, const CodePointRange& b) {
    return a.low != b.low ? a.low < b.low : a.high < b.high;
  });
  CodePoints out;
  for (CodePointRange range : set) {
    range.high = std::min(range.high, kCodePointMax);
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodePoints Complement(const CodePoints& set) {
  CodePoints out;
  uint32_t next = 0;
  for (const CodePointRange& range : Normalised(set)) {
    if (range.low > next) out.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kCodePointMax) out.push_back({next, kCodePointMax});
  return out;
}

CodePoints Intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints others = Complement(a);
  const CodePoints not_b = Complement(b);
  others.insert(others.end(), not_b.begin(), not_b.end());
  return Complement(others);
}

bool Contains(const CodePoints& set, uint32_t code_point) {
  return std::any_of(set.begin(), set.end(), [code_point](const CodePointRange& range) {
    return range.low <= code_point && code_point <= range.high;
  });
}

std::vector<ByteSequence> Utf8SequencesOf(const CodePoints& set) {
  CodePoints todo =
      Intersection(set, {{0, kSurrogateFirst - 1}, {kSurrogateLast + 1, kCodePointMax}});
  std::reverse(todo.begin(), todo.end());
  std::vector<ByteSequence> out;
  while (!todo.empty()) {
    const CodePointRange range = todo.back();
    const uint32_t cut = CutOf(range);
    if (cut < range.high) {
      todo.back() = {cut + 1, range.high};
      todo.push_back({range.low, cut});
      continue;
    }
    todo.pop_back();
    const size_t bytes = EncodedBytes(range.low);
    std::array<uint8_t, 4> low = {};
    std::array<uint8_t, 4> high = {};
    Encode(range.low, bytes, &low);
    Encode(range.high, bytes, &high);
    ByteSequence& sequence = out.emplace_back();
    for (size_t i = 0; i < bytes; ++i) sequence.push_back({low[i], high[i]});
  }
  return out;
}

}  // namespace shardline
