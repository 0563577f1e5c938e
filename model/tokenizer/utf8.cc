#include "model/tokenizer/utf8.h"

#include <algorithm>

#include "base/check.h"

namespace shardline {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr uint32_t kPrivateUse = 0xE000;  // Three bytes, like a surrogate; in no class we ask for.

bool IsSurrogate(uint32_t code_point) { return code_point >= 0xD800 && code_point <= 0xDFFF; }

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
    AppendUtf8(IsSurrogate(code_point) ? kPrivateUse : code_point, &result.subject);
  }
  return result;
}

}  // namespace shardline
