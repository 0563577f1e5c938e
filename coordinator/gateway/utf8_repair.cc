#include "coordinator/gateway/utf8_repair.h"

#include <algorithm>
#include <cstdint>

namespace shardline {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A row of Unicode 15, table 3-7: leads, their sequence's length, and what the second byte may be;
// bytes behind it are any of 80 to BF.
struct SequenceRow {
  uint8_t lead_begin, lead_last;
  size_t length;
  uint8_t second_begin, second_last;
};
constexpr SequenceRow kRows[] = {
    {0x00, 0x7F, 1, 0x00, 0x00}, {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

// The length of the sequence that `bytes` begins with; 0 when there is none.
size_t SequenceAt(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const auto* const row = std::find_if(
      std::begin(kRows), std::end(kRows),
      [lead](const SequenceRow& r) { return lead >= r.lead_begin && lead <= r.lead_last; });
  if (row == std::end(kRows) || bytes.size() < row->length) return 0;
  for (size_t i = 1; i < row->length; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? row->second_begin : 0x80;
    const uint8_t high = i == 1 ? row->second_last : 0xBF;
    if (byte < low || byte > high) return 0;
  }
  return row->length;
}

}  // namespace

std::string RepairUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceAt(bytes);
    out += length > 0 ? bytes.substr(0, length) : kReplacement;
    bytes.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

size_t Utf8Length(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace shardline
