#include "model/tokenizer/utf8.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace shardline {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr uint32_t kPrivateUse = 0xE000;  // Three bytes, like a surrogate; in no class we ask for.

// Four bytes each, like all that they stand in for.
constexpr uint32_t kLetter = 0x20000;
constexpr uint32_t kDigit = 0x1D7D8;
constexpr uint32_t kPunctuation = 0x10100;

struct StandIn {
  uint32_t first;
  uint32_t last;
  uint32_t code_point;
};

// Unicode 15.0 and 15.1 less 14.0: general categories L, N and P. Ascending.
constexpr StandIn kNewCharacters[] = {
    {0x1123F, 0x11240, kLetter}, {0x11B00, 0x11B09, kPunctuation}, {0x11F02, 0x11F02, kLetter},
    {0x11F04, 0x11F10, kLetter}, {0x11F12, 0x11F33, kLetter},      {0x11F43, 0x11F4F, kPunctuation},
    {0x11F50, 0x11F59, kDigit},  {0x1342F, 0x1342F, kLetter},      {0x13441, 0x13446, kLetter},
    {0x1B132, 0x1B132, kLetter}, {0x1B155, 0x1B155, kLetter},      {0x1D2C0, 0x1D2D3, kDigit},
    {0x1DF25, 0x1DF2A, kLetter}, {0x1E030, 0x1E06D, kLetter},      {0x1E4D0, 0x1E4EB, kLetter},
    {0x1E4F0, 0x1E4F9, kDigit},  {0x2B739, 0x2B739, kLetter},      {0x2EBF0, 0x2EE5D, kLetter},
    {0x31350, 0x323AF, kLetter},
};

uint32_t ForPatterns(uint32_t code_point) {
  if (code_point >= 0xD800 && code_point <= 0xDFFF) return kPrivateUse;
  if (code_point < std::begin(kNewCharacters)->first) return code_point;
  const StandIn* range =
      std::lower_bound(std::begin(kNewCharacters), std::end(kNewCharacters), code_point,
                       [](const StandIn& a, uint32_t b) { return a.last < b; });
  const bool is_new = range != std::end(kNewCharacters) && range->first <= code_point;
  return is_new ? range->code_point : code_point;
}

}  // namespace

size_t Utf8ClaimedBytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

int32_t NextCodePoint(std::string_view bytes, size_t* position) {
  const size_t start = (*position)++;
  const auto lead = static_cast<uint8_t>(bytes[start]);
  if (lead < 0x80) return lead;
  if (lead < 0xC0 || lead >= 0xF8) return -1;
  const size_t length = Utf8ClaimedBytes(bytes[start]);
  if (length > bytes.size() - start) return -1;
  uint32_t code_point = lead & (0xFFu >> (length + 1));
  for (size_t i = start + 1; i < start + length; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if ((byte & 0xC0) != 0x80) return -1;
    code_point = code_point << 6 | (byte & 0x3F);
  }
  if (code_point > 0x10FFFF) return -1;
  *position = start + length;
  return static_cast<int32_t>(code_point);
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  SL_CHECK(code_point <= 0x10FFFF);
  const auto tail = [out, code_point](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

LenientText MakeLenient(std::string_view bytes) {
  LenientText result;
  result.text.reserve(bytes.size());
  result.subject.reserve(bytes.size());
  for (size_t position = 0; position < bytes.size();) {
    const int32_t read = NextCodePoint(bytes, &position);
    const uint32_t code_point = read < 0 ? kReplacement : static_cast<uint32_t>(read);
    AppendUtf8(code_point, &result.text);
    AppendUtf8(ForPatterns(code_point), &result.subject);
  }
  return result;
}

}  // namespace shardline
