#pragma once

// What unicode.cc knows of characters: tables, each in rising order.

#include <vector>

namespace shardline::jinja {

// All of [first, last].
struct CodePointRange {
  char32_t first;
  char32_t last;
};

// Every `step`th code point of [first, last] moves by `delta`.
struct CaseRun {
  char32_t first;
  char32_t last;
  char32_t step;
  int delta;
};

// A code point that becomes several.
struct CaseText {
  char32_t code_point;
  const char* text;
};

const std::vector<CodePointRange>& Unprintable();
const std::vector<CodePointRange>& Cased();
const std::vector<CaseRun>& UpperRuns();
const std::vector<CaseText>& UpperTexts();
const std::vector<CaseRun>& LowerRuns();
const std::vector<CaseText>& LowerTexts();
const std::vector<CaseRun>& TitleRuns();
const std::vector<CaseText>& TitleTexts();

}  // namespace shardline::jinja
