#include "model/jinja/unicode.h"

#include <algorithm>
#include <vector>

#include "model/jinja/text.h"
#include "model/jinja/unicode_tables.h"

namespace shardline::jinja {
namespace {

bool IsIn(const std::vector<CodePointRange>& ranges, char32_t c) {
  const auto behind =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t x, const CodePointRange& range) { return x < range.first; });
  return behind != ranges.begin() && c <= std::prev(behind)->last;
}

bool IsCased(char32_t c) { return IsIn(Cased(), c); }

void AppendMapped(char32_t c, const std::vector<CaseRun>& runs, const std::vector<CaseText>& texts,
                  std::string* out) {
  const auto text =
      std::lower_bound(texts.begin(), texts.end(), c,
                       [](const CaseText& entry, char32_t x) { return entry.code_point < x; });
  if (text != texts.end() && text->code_point == c) {
    *out += text->text;
    return;
  }
  const auto behind =
      std::upper_bound(runs.begin(), runs.end(), c,
                       [](char32_t x, const CaseRun& entry) { return x < entry.first; });
  if (behind != runs.begin()) {
    const CaseRun& run = *std::prev(behind);
    if (c <= run.last && (c - run.first) % run.step == 0) {
      c = static_cast<char32_t>(static_cast<int>(c) + run.delta);
    }
  }
  AppendUtf8(c, out);
}

void AppendTitle(char32_t c, std::string* out) { AppendMapped(c, TitleRuns(), TitleTexts(), out); }

// `before` is the character in front (0: none), `next` the byte behind.
void AppendLower(char32_t c, char32_t before, std::string_view text, size_t next,
                 std::string* out) {
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  if (c == kSigma && before != 0 && IsCased(before)) {
    const bool goes_on = next < text.size() && IsCased(NextCodePoint(text, &next));
    if (!goes_on) return AppendUtf8(kFinalSigma, out);
  }
  AppendMapped(c, LowerRuns(), LowerTexts(), out);
}

}  // namespace

bool IsPrintable(char32_t code_point) { return !IsIn(Unprintable(), code_point); }

std::string Upper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    AppendMapped(NextCodePoint(text, &i), UpperRuns(), UpperTexts(), &out);
  }
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  char32_t before = 0;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, &i);
    AppendLower(c, before, text, i, &out);
    before = c;
  }
  return out;
}

std::string Capitalized(std::string_view text) {
  std::string out;
  char32_t before = 0;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, &i);
    if (before == 0) {
      AppendTitle(c, &out);
    } else {
      AppendLower(c, before, text, i, &out);
    }
    before = c;
  }
  return out;
}

std::string TitleCased(std::string_view text) {
  std::string out;
  char32_t before = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, &i);
    if (in_word) {
      AppendLower(c, before, text, i, &out);
    } else {
      AppendTitle(c, &out);
    }
    in_word = IsCased(c);
    before = c;
  }
  return out;
}

}  // namespace shardline::jinja
