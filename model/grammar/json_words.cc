#include "model/grammar/json_words.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace shardline {
namespace {

// Doubles tell numbers of so many digits apart.
constexpr int kDigitsExact = 15;

const CodePoints& Unescaped() {
  static const auto* const set = new CodePoints(Complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}));
  return *set;
}

int DigitCount(uint64_t number) { return static_cast<int>(absl::StrCat(number).size()); }

uint64_t PowerOfTen(int exponent) {
  uint64_t out = 1;
  while (exponent-- > 0) out *= 10;
  return out;
}

std::string AnyDigits(size_t count) {
  if (count == 0) return "";
  return count == 1 ? "[0-9]" : absl::StrCat("[0-9]{", count, "}");
}

std::string DigitBetween(char low, char high) {
  if (low == high) return GbnfLiteral(std::string(1, low));
  return absl::StrCat("[", std::string(1, low), "-", std::string(1, high), "]");
}

// Numbers of one length, `low` <= `high`.
std::string DigitsBetween(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  const auto is_all = [](std::string_view digits, char digit) {
    return digits.find_first_not_of(digit) == std::string_view::npos;
  };
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  if (is_all(low_rest, '0') && is_all(high_rest, '9')) {
    return absl::StrCat(DigitBetween(low[0], high[0]), " ", AnyDigits(low_rest.size()));
  }
  if (low[0] == high[0]) {
    return absl::StrCat(DigitBetween(low[0], low[0]), " (", DigitsBetween(low_rest, high_rest),
                        ")");
  }
  std::vector<std::string> ways;
  char first = low[0];
  char last = high[0];
  if (!is_all(low_rest, '0')) {
    ways.push_back(absl::StrCat(DigitBetween(first, first), " (",
                                DigitsBetween(low_rest, std::string(low_rest.size(), '9')), ")"));
    ++first;
  }
  if (!is_all(high_rest, '9')) {
    ways.push_back(absl::StrCat(DigitBetween(last, last), " (",
                                DigitsBetween(std::string(high_rest.size(), '0'), high_rest), ")"));
    --last;
  }
  if (first <= last) {
    ways.push_back(absl::StrCat(DigitBetween(first, last), " ", AnyDigits(low_rest.size())));
  }
  return absl::StrJoin(ways, " | ");
}

// Empty if low > high.
std::string NaturalBetween(uint64_t low, uint64_t high) {
  std::vector<std::string> ways;
  for (int digits = DigitCount(low); low <= high && digits <= DigitCount(high); ++digits) {
    const uint64_t first = std::max(low, digits == 1 ? 0 : PowerOfTen(digits - 1));
    const uint64_t last = std::min(high, PowerOfTen(digits) - 1);
    ways.push_back(DigitsBetween(absl::StrCat(first), absl::StrCat(last)));
  }
  return absl::StrJoin(ways, " | ");
}

struct Magnitude {
  int64_t low = 0;
  bool without_low = false;
  std::optional<int64_t> high;
  bool without_high = false;
};

// Numbers without a sign.
std::string MagnitudeBetween(const Magnitude& m) {
  const int64_t top = m.high.value_or(kJsonIntegerMax);
  if (m.low > top) return "";
  const int whole = DigitCount(static_cast<uint64_t>(m.high.value_or(m.low)));
  const int places = std::max(0, kDigitsExact - std::max(whole, 2));
  const std::string fraction = places == 0 ? "" : absl::StrCat("(\".\" [0-9]{1,", places, "})?");
  const std::string zeros = places == 0 ? "" : absl::StrCat("(\".\" \"0\"{1,", places, "})?");
  const auto number = [](int64_t value) { return GbnfLiteral(absl::StrCat(value)); };
  std::vector<std::string> ways;
  const bool is_point = m.low == top;
  if (is_point) {
    if (!m.without_low && !m.without_high) ways.push_back(absl::StrCat(number(top), " ", zeros));
    return absl::StrJoin(ways, " | ");
  }
  if (!m.without_low) {
    ways.push_back(absl::StrCat(number(m.low), " ", fraction));
  } else if (places > 0) {
    const int zeros_max = places / 2;
    ways.push_back(absl::StrCat(number(m.low), " \".\" \"0\"{0,", zeros_max, "} [1-9] [0-9]{0,",
                                places - 1 - zeros_max, "}"));
  }
  const std::string inside = NaturalBetween(static_cast<uint64_t>(m.low + 1),
                                            static_cast<uint64_t>(m.high ? top - 1 : top));
  if (!inside.empty()) ways.push_back(absl::StrCat("(", inside, ") ", fraction));
  if (m.high && !m.without_high) ways.push_back(absl::StrCat(number(top), " ", zeros));
  return absl::StrJoin(ways, " | ");
}

}  // namespace

std::string JsonSpace(GrammarBuilder* grammar) {
  return grammar->AddShared("json-space", "(\" \" | \"\\n\" \" \"{0,20})?");
}

std::string JsonCharacter(GrammarBuilder* grammar) {
  const std::string hex = "[0-9a-fA-F]";
  const std::string unit =
      absl::StrCat("[0-9a-cA-CefEF] ", hex, "{3} | [dD] [0-7] ", hex, "{2} | [dD] [89abAB] ", hex,
                   "{2} \"\\\\u\" [dD] [c-fC-F] ", hex, "{2}");
  return grammar->AddShared(
      "json-character",
      absl::StrCat(GbnfClass(Unescaped()), " | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" (", unit, "))"));
}

std::string JsonString(GrammarBuilder* grammar) {
  return grammar->AddShared("json-string",
                            absl::StrCat("\"\\\"\" ", JsonCharacter(grammar), "* \"\\\"\""));
}

std::string JsonInteger(GrammarBuilder* grammar) {
  return grammar->AddShared("json-integer", "\"-\"? (\"0\" | [1-9] [0-9]{0,17})");
}

std::string JsonNumber(GrammarBuilder* grammar) {
  return grammar->AddShared(
      "json-number",
      absl::StrCat(JsonInteger(grammar), " (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?"));
}

std::string JsonObject(GrammarBuilder* grammar) {
  JsonValue(grammar);
  return *grammar->FindShared("json-object");
}

std::string JsonArray(GrammarBuilder* grammar) {
  JsonValue(grammar);
  return *grammar->FindShared("json-array");
}

std::string JsonValue(GrammarBuilder* grammar) {
  if (std::optional<std::string> known = grammar->FindShared("json-value")) return *known;
  const std::string value = grammar->ReserveShared("json-value");
  const std::string space = JsonSpace(grammar);
  const std::string string = JsonString(grammar);
  const std::string member =
      grammar->AddShared("json-member", absl::StrCat(string, " \":\" ", space, " ", value));
  const auto list = [&](const std::string& item) {
    return absl::StrCat(" ", space, " (", item, " (\",\" ", space, " ", item, ")* ", space, ")? ");
  };
  const std::string object =
      grammar->AddShared("json-object", absl::StrCat("\"{\"", list(member), "\"}\""));
  const std::string array =
      grammar->AddShared("json-array", absl::StrCat("\"[\"", list(value), "\"]\""));
  grammar->Define(value, absl::StrCat(object, " | ", array, " | ", string, " | ",
                                      JsonNumber(grammar), " | \"true\" | \"false\" | \"null\""));
  return value;
}

std::string JsonCharacterOf(const CodePoints& set) {
  struct Escape {
    uint32_t code_point;
    std::string_view spelling;
  };
  constexpr Escape kEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                 {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  std::vector<std::string> ways;
  const CodePoints plain = Intersection(set, Unescaped());
  if (!plain.empty()) ways.push_back(GbnfClass(plain));
  for (const Escape& escape : kEscapes) {
    if (Contains(set, escape.code_point)) ways.push_back(GbnfLiteral(escape.spelling));
  }
  if (ways.empty() && set.size() == 1 && set[0].low == set[0].high) {
    ways.push_back(GbnfLiteral(absl::StrFormat("\\u%04x", set[0].low)));
  }
  return ways.size() <= 1 ? absl::StrJoin(ways, "")
                          : absl::StrCat("(", absl::StrJoin(ways, " | "), ")");
}

std::string JsonIntegerBetween(int64_t low, int64_t high) {
  low = std::max(low, -kJsonIntegerMax);
  high = std::min(high, kJsonIntegerMax);
  std::vector<std::string> ways;
  if (low < 0) {
    const std::string negative = NaturalBetween(static_cast<uint64_t>(std::max<int64_t>(1, -high)),
                                                static_cast<uint64_t>(-low));
    if (!negative.empty()) ways.push_back(absl::StrCat("\"-\" (", negative, ")"));
  }
  if (high >= 0) {
    const std::string natural = NaturalBetween(static_cast<uint64_t>(std::max<int64_t>(0, low)),
                                               static_cast<uint64_t>(high));
    if (!natural.empty()) ways.push_back(natural);
  }
  return absl::StrJoin(ways, " | ");
}

std::string JsonNumberBetween(const JsonNumberBounds& bounds) {
  std::vector<std::string> ways;
  if (!bounds.high || *bounds.high >= 0) {
    const bool is_low = bounds.low && *bounds.low >= 0;
    const std::string positive = MagnitudeBetween({.low = is_low ? *bounds.low : 0,
                                                   .without_low = is_low && bounds.without_low,
                                                   .high = bounds.high,
                                                   .without_high = bounds.without_high});
    if (!positive.empty()) ways.push_back(positive);
  }
  if (!bounds.low || *bounds.low < 0) {
    const bool is_high = bounds.high && *bounds.high < 0;
    Magnitude negative{.low = is_high ? -*bounds.high : 0,
                       .without_low = is_high ? bounds.without_high : true,
                       .without_high = bounds.without_low};
    if (bounds.low) negative.high = -*bounds.low;
    const std::string spelled = MagnitudeBetween(negative);
    if (!spelled.empty()) ways.push_back(absl::StrCat("\"-\" (", spelled, ")"));
  }
  return absl::StrJoin(ways, " | ");
}

}  // namespace shardline
