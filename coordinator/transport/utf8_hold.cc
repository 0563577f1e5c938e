#include "coordinator/transport/utf8_hold.h"

#include <algorithm>
#include <cstdint>

namespace shardline {
namespace {

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the sequence that `lead` begins; 1 when it begins none.
size_t SequenceLength(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 1;
}

// The second byte narrows four leads further: no overlong forms, surrogates, or code points past
// U+10FFFF (Unicode 15, table 3-7).
bool SecondMayFollow(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return IsContinuation(second);
  }
}

}  // namespace

size_t Utf8Hold::IncompleteTail(std::string_view bytes) {
  const size_t longest = std::min<size_t>(3, bytes.size());
  for (size_t tail = 1; tail <= longest; ++tail) {
    const auto lead = static_cast<uint8_t>(bytes[bytes.size() - tail]);
    if (IsContinuation(lead)) continue;
    if (SequenceLength(lead) <= tail) return 0;
    if (tail >= 2 && !SecondMayFollow(lead, static_cast<uint8_t>(bytes[bytes.size() - tail + 1]))) {
      return 0;
    }
    return tail;
  }
  return 0;
}

}  // namespace shardline
