#include "model/grammar/json_pattern.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/grammar/code_points.h"
#include "model/grammar/json_words.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

constexpr uint32_t kCountMax = 16384;

const CodePoints& Ascii() {
  static const auto* const set = new CodePoints{{0, 0x7F}};
  return *set;
}

class PatternParser {
 public:
  PatternParser(std::string_view pattern, GrammarBuilder* grammar)
      : text_(pattern), grammar_(grammar) {}

  absl::StatusOr<std::string> Parse();

 private:
  absl::Status Error(size_t position, std::string_view message) const {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("at ", position, ": ", std::string(message)));
  }
  bool AtEnd() const { return at_ >= text_.size(); }
  bool AtEndOfAlternative() const { return AtEnd() || text_[at_] == '|' || text_[at_] == ')'; }
  bool Take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  absl::StatusOr<std::string> ParseAlternatives(int nesting);
  absl::StatusOr<std::string> ParseSequence(int nesting);
  absl::StatusOr<std::string> ParseAtom(int nesting);
  absl::StatusOr<std::string> ParseGroup(int nesting);
  absl::StatusOr<std::string> ParseQuantifier(std::string atom);
  absl::StatusOr<uint32_t> ParseCount();
  absl::StatusOr<CodePoints> ParseClass();
  absl::StatusOr<CodePoints> ParseCharacter();
  absl::StatusOr<CodePoints> ParseEscape();
  CodePoints Shorthand(char letter);
  absl::StatusOr<CodePoints> ParseHex(int digits);
  absl::StatusOr<std::string> Spelled(const CodePoints& set, size_t position) const;

  const std::string_view text_;
  GrammarBuilder* const grammar_;
  size_t at_ = 0;
  bool uses_shorthand_ = false;  // The class that is read.
};

absl::StatusOr<std::string> PatternParser::Parse() {
  SL_ASSIGN_OR_RETURN(const std::string body, ParseAlternatives(0));
  if (!AtEnd()) return Error(at_, "')' without '('");
  return grammar_->AddRule("pattern", absl::StrCat("\"\\\"\" (", body, ") \"\\\"\""));
}

// Only the outermost alternatives have anchors; without one, anything goes on that side.
absl::StatusOr<std::string> PatternParser::ParseAlternatives(int nesting) {
  if (nesting > kJsonPatternNestingMax) return Error(at_, "groups are nested too deep");
  const std::string anything = absl::StrCat(JsonCharacter(grammar_), "*");
  std::vector<std::string> ways;
  do {
    std::vector<std::string> parts;
    if (nesting == 0 && !Take("^")) parts.push_back(anything);
    SL_ASSIGN_OR_RETURN(const std::string sequence, ParseSequence(nesting));
    parts.push_back(sequence.empty() ? "\"\"" : sequence);
    if (nesting == 0 && !Take("$")) parts.push_back(anything);
    if (!AtEndOfAlternative()) return Error(at_, "an anchor stands at an end of the pattern only");
    ways.push_back(absl::StrJoin(parts, " "));
  } while (Take("|"));
  return absl::StrJoin(ways, " | ");
}

absl::StatusOr<std::string> PatternParser::ParseSequence(int nesting) {
  std::vector<std::string> items;
  while (!AtEndOfAlternative() && text_[at_] != '$') {
    SL_ASSIGN_OR_RETURN(std::string atom, ParseAtom(nesting));
    SL_ASSIGN_OR_RETURN(atom, ParseQuantifier(std::move(atom)));
    items.push_back(std::move(atom));
  }
  return absl::StrJoin(items, " ");
}

absl::StatusOr<std::string> PatternParser::ParseAtom(int nesting) {
  const size_t begin = at_;
  switch (text_[at_]) {
    case '(':
      return ParseGroup(nesting);
    case '[': {
      SL_ASSIGN_OR_RETURN(const CodePoints set, ParseClass());
      return Spelled(set, begin);
    }
    case '.':
      ++at_;
      return Spelled(Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}), begin);
    case '^':
      return Error(begin, "an anchor stands at an end of the pattern only");
    case '*':
    case '+':
    case '?':
    case '{':
      return Error(begin, "there is nothing to repeat");
    default: {
      SL_ASSIGN_OR_RETURN(const CodePoints set, ParseCharacter());
      return Spelled(set, begin);
    }
  }
}

absl::StatusOr<std::string> PatternParser::ParseGroup(int nesting) {
  const size_t begin = at_++;
  if (!Take("?:") && Take("?")) return Error(begin, "this kind of group is not supported");
  SL_ASSIGN_OR_RETURN(const std::string group, ParseAlternatives(nesting + 1));
  if (!Take(")")) return Error(begin, "this '(' is never closed");
  return absl::StrCat("(", group, ")");
}

absl::StatusOr<std::string> PatternParser::ParseQuantifier(std::string atom) {
  if (AtEnd()) return atom;
  std::string quantifier;
  if (Take("*")) {
    quantifier = "*";
  } else if (Take("+")) {
    quantifier = "+";
  } else if (Take("?")) {
    quantifier = "?";
  } else if (text_[at_] == '{') {
    const size_t begin = at_++;
    SL_ASSIGN_OR_RETURN(const uint32_t min, ParseCount());
    quantifier = absl::StrCat("{", min, "}");
    if (Take(",")) {
      const bool is_open = !AtEnd() && text_[at_] == '}';
      if (is_open) {
        quantifier = absl::StrCat("{", min, ",}");
      } else {
        SL_ASSIGN_OR_RETURN(const uint32_t max, ParseCount());
        if (max < min) return Error(begin, "a quantifier of at most less than at least");
        quantifier = absl::StrCat("{", min, ",", max, "}");
      }
    }
    if (!Take("}")) return Error(begin, "a quantifier is {m}, {m,} or {m,n}");
  } else {
    return atom;
  }
  Take("?");  // Lazy: the same texts.
  if (!AtEnd() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) {
    return Error(at_, "there is nothing to repeat");
  }
  return absl::StrCat(atom, quantifier);
}

absl::StatusOr<uint32_t> PatternParser::ParseCount() {
  const size_t begin = at_;
  uint32_t count = 0;
  while (!AtEnd() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
    count = count * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    if (count > kCountMax) return Error(begin, absl::StrCat("a count over ", kCountMax));
  }
  if (at_ == begin) return Error(begin, "a quantifier is {m}, {m,} or {m,n}");
  return count;
}

absl::StatusOr<CodePoints> PatternParser::ParseClass() {
  const size_t begin = at_++;
  const bool is_negated = Take("^");
  uses_shorthand_ = false;
  CodePoints set;
  while (!Take("]")) {
    if (AtEnd()) return Error(begin, "this '[' is never closed");
    const size_t position = at_;
    SL_ASSIGN_OR_RETURN(CodePoints part, ParseCharacter());
    const bool is_range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
    if (is_range) {
      ++at_;
      SL_ASSIGN_OR_RETURN(const CodePoints end, ParseCharacter());
      const bool is_single = part.size() == 1 && part[0].low == part[0].high && end.size() == 1 &&
                             end[0].low == end[0].high && part[0].low <= end[0].low;
      if (!is_single) return Error(position, "this is no range of characters");
      part[0].high = end[0].high;
    }
    set.insert(set.end(), part.begin(), part.end());
  }
  if (!is_negated) return Normalised(set);
  return uses_shorthand_ ? Intersection(Complement(set), Ascii()) : Complement(set);
}

absl::StatusOr<CodePoints> PatternParser::ParseCharacter() {
  if (text_[at_] == '\\') return ParseEscape();
  const size_t begin = at_;
  const int32_t code_point = NextCodePoint(text_, &at_);
  if (code_point < 0) return Error(begin, "this is not UTF-8");
  const auto value = static_cast<uint32_t>(code_point);
  return CodePoints{{value, value}};
}

absl::StatusOr<CodePoints> PatternParser::ParseEscape() {
  const size_t begin = at_++;
  if (AtEnd()) return Error(begin, "an escape of nothing");
  const char escaped = text_[at_++];
  const auto one = [](char c) {
    const auto value = static_cast<uint32_t>(c);
    return CodePoints{{value, value}};
  };
  switch (escaped) {
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 's':
    case 'S':
      return Shorthand(escaped);
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 't':
      return one('\t');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case 'x':
      return ParseHex(2);
    case 'u':
      return ParseHex(4);
    default:
      break;
  }
  if (absl::ascii_ispunct(static_cast<unsigned char>(escaped))) return one(escaped);
  return Error(begin,
               absl::StrCat("the escape '\\", std::string(1, escaped), "' is not supported"));
}

// Engines agree on them within ASCII only, so no other characters are taken for their opposites.
CodePoints PatternParser::Shorthand(char letter) {
  uses_shorthand_ = true;
  CodePoints set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  const char kind = absl::ascii_tolower(static_cast<unsigned char>(letter));
  if (kind == 'd') set = {{'0', '9'}};
  if (kind == 's') set = {{'\t', '\r'}, {' ', ' '}};
  return kind == letter ? set : Intersection(Complement(set), Ascii());
}

absl::StatusOr<CodePoints> PatternParser::ParseHex(int digits) {
  const size_t begin = at_;
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const auto c = AtEnd() ? '\0' : text_[at_];
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      return Error(begin, absl::StrCat("this escape wants ", digits, " hexadecimal digits"));
    }
    const int digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                          ? c - '0'
                          : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  if (value >= 0xD800 && value <= 0xDFFF) return Error(begin, "a surrogate is no character");
  return CodePoints{{value, value}};
}

absl::StatusOr<std::string> PatternParser::Spelled(const CodePoints& set, size_t position) const {
  std::string out = JsonCharacterOf(set);
  if (out.empty()) return Error(position, "no string has such a character");
  return out;
}

}  // namespace

absl::StatusOr<std::string> AddJsonPattern(std::string_view pattern, GrammarBuilder* grammar) {
  if (pattern.size() > kJsonPatternBytesMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("it has ", pattern.size(), " bytes, at most ", kJsonPatternBytesMax));
  }
  return PatternParser(pattern, grammar).Parse();
}

}  // namespace shardline
