#include "model/jinja/text.h"

#include <algorithm>

#include "model/jinja/unicode.h"

namespace shardline::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t LengthOf(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// The code point that ends at byte `end`, and where it starts. REQUIRES: end > 0.
char32_t CodePointBefore(std::string_view text, size_t end, size_t* start) {
  *start = end - 1;
  while (*start > 0 && IsContinuation(text[*start])) --*start;
  size_t position = *start;
  return NextCodePoint(text, &position);
}

bool Contains(std::string_view characters, char32_t code_point) {
  if (characters.empty()) return IsSpace(code_point);
  for (size_t i = 0; i < characters.size();) {
    if (NextCodePoint(characters, &i) == code_point) return true;
  }
  return false;
}

void AppendEscaped(char32_t code_point, std::string* out) {
  int digits = 2;
  char letter = 'x';
  if (code_point > 0xFFFF) {
    digits = 8;
    letter = 'U';
  } else if (code_point > 0xFF) {
    digits = 4;
    letter = 'u';
  }
  *out += '\\';
  *out += letter;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    *out += kHex[(code_point >> shift) & 15];
  }
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xC2 || lead > 0xF4) return false;
    const size_t length = LengthOf(bytes[i]);
    if (bytes.size() - i < length) return false;
    for (size_t k = 1; k < length; ++k) {
      if (!IsContinuation(bytes[i + k])) return false;
    }
    const char32_t code_point = NextCodePoint(bytes, &i);
    if (length == 3 && (code_point < 0x800 || (code_point >= 0xD800 && code_point < 0xE000))) {
      return false;
    }
    if (length == 4 && (code_point < 0x10000 || code_point > 0x10FFFF)) return false;
  }
  return true;
}

char32_t NextCodePoint(std::string_view text, size_t* position) {
  const size_t start = *position;
  const size_t length = LengthOf(text[start]);
  *position = std::min(text.size(), start + length);
  if (length == 1) return static_cast<unsigned char>(text[start]);
  char32_t code_point = static_cast<unsigned char>(text[start]) & (0xFF >> (length + 1));
  for (size_t i = start + 1; i < *position; ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  if (code_point < 0x80) {
    *out += static_cast<char>(code_point);
    return;
  }
  int shift = 6;
  if (code_point < 0x800) {
    *out += static_cast<char>(0xC0 | (code_point >> 6));
  } else if (code_point < 0x10000) {
    *out += static_cast<char>(0xE0 | (code_point >> 12));
    shift = 12;
  } else {
    *out += static_cast<char>(0xF0 | (code_point >> 18));
    shift = 18;
  }
  for (shift -= 6; shift >= 0; shift -= 6) {
    *out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  }
}

size_t CodePointCount(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += LengthOf(text[offset]);
  return std::min(offset, text.size());
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view StripLeft(std::string_view text, std::string_view characters) {
  size_t start = 0;
  while (start < text.size()) {
    size_t next = start;
    if (!Contains(characters, NextCodePoint(text, &next))) break;
    start = next;
  }
  return text.substr(start);
}

std::string_view StripRight(std::string_view text, std::string_view characters) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = 0;
    if (!Contains(characters, CodePointBefore(text, end, &start))) break;
    end = start;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t splits, bool from_right) {
  std::vector<std::string_view> pieces;
  text = from_right ? StripRight(text) : StripLeft(text);
  while (!text.empty()) {
    if (splits >= 0 && pieces.size() == static_cast<size_t>(splits)) {
      pieces.push_back(text);
      break;
    }
    size_t cut = from_right ? text.size() : 0;
    while (from_right ? cut > 0 : cut < text.size()) {
      size_t other = cut;
      const char32_t c =
          from_right ? CodePointBefore(text, cut, &other) : NextCodePoint(text, &other);
      if (IsSpace(c)) break;
      cut = other;
    }
    pieces.push_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = from_right ? StripRight(text.substr(0, cut)) : StripLeft(text.substr(cut));
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t splits, bool from_right) {
  std::vector<std::string_view> pieces;
  while (splits < 0 || pieces.size() < static_cast<size_t>(splits)) {
    const size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == text.npos) break;
    const size_t behind = found + separator.size();
    pieces.push_back(from_right ? text.substr(behind) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(behind);
  }
  pieces.push_back(text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const char32_t c = NextCodePoint(text, &i);
    const bool is_end =
        (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!is_end) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(start, (keep_ends ? i : end) - start));
    start = i;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

size_t SearchSteps(std::string_view text, std::string_view part) {
  constexpr size_t kBytesAStep = 64;
  return 1 + text.size() / kBytesAStep * (1 + part.size() / kBytesAStep);
}

size_t CountOf(std::string_view text, std::string_view part) {
  if (part.empty()) return CodePointCount(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string ReplaceIn(std::string_view text, std::string_view part, std::string_view by,
                      int64_t count) {
  std::string out;
  size_t done = 0;
  const auto may_go_on = [&count] { return count < 0 || count-- > 0; };
  if (part.empty()) {
    while (may_go_on()) {
      out += by;
      if (done == text.size()) return out;
      const size_t start = done;
      NextCodePoint(text, &done);
      out += text.substr(start, done - start);
    }
    return out.append(text.substr(done));
  }
  for (size_t at = text.find(part); at != text.npos && may_go_on(); at = text.find(part, done)) {
    out += text.substr(done, at - done);
    out += by;
    done = at + part.size();
  }
  return out.append(text.substr(done));
}

std::string Quoted(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const bool has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, &i);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      AppendUtf8(c, &out);
    } else {
      AppendEscaped(c, &out);
    }
  }
  return out += quote;
}

}  // namespace shardline::jinja
