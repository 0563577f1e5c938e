#include "model/grammar/gbnf_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

using Kind = GbnfNode::Kind;

constexpr int kRepeatsMax = 4;  // Behind one item: each is a level of the tree.

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<GbnfTree> Parse();

 private:
  struct Name {
    size_t rule = 0;
    size_t position = 0;  // Where it was first used.
    bool is_defined = false;
  };

  absl::Status ErrorAt(size_t position, std::string_view message) const;
  absl::Status Error(std::string_view message) const { return ErrorAt(at_, message); }
  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool Take(char wanted);
  void SkipSpace(bool over_lines);
  void SkipToNextAlternative();

  absl::Status ParseRule();
  absl::StatusOr<size_t> ParseAlternatives(int nesting);
  absl::StatusOr<size_t> ParseSequence(int nesting);
  absl::StatusOr<std::optional<size_t>> ParseItem(int nesting);
  absl::StatusOr<size_t> ParseRepeat(size_t item);
  absl::Status ParseBounds(GbnfNode* repeat);
  absl::StatusOr<uint32_t> ParseNumber();
  absl::StatusOr<size_t> ParseLiteral();
  absl::StatusOr<size_t> ParseClass();
  absl::StatusOr<uint32_t> ParseCharacter();
  absl::StatusOr<uint32_t> ParseHex(int digits);
  std::string_view ParseName();
  Name& Refer(std::string_view name, size_t position);

  size_t Add(GbnfNode node) {
    tree_.nodes.push_back(std::move(node));
    return tree_.nodes.size() - 1;
  }

  const std::string_view text_;
  size_t at_ = 0;
  GbnfTree tree_;
  absl::flat_hash_map<std::string, Name> names_;
};

absl::Status Parser::ErrorAt(size_t position, std::string_view message) const {
  const std::string_view before = text_.substr(0, position);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return MakeFailure(
      FailureKind::kInvalidRequest,
      absl::StrCat("grammar ", line, ":", position - line_begin + 1, ": ", std::string(message)));
}

bool Parser::Take(char wanted) {
  if (AtEnd() || Peek() != wanted) return false;
  ++at_;
  return true;
}

void Parser::SkipSpace(bool over_lines) {
  while (!AtEnd()) {
    const char c = Peek();
    if (c == '#') {
      while (!AtEnd() && Peek() != '\n' && Peek() != '\r') ++at_;
    } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
      ++at_;
    } else {
      return;
    }
  }
}

// An alternative may begin on a line of its own.
void Parser::SkipToNextAlternative() {
  const size_t before = at_;
  SkipSpace(/*over_lines=*/true);
  if (Peek() != '|') at_ = before;
}

std::string_view Parser::ParseName() {
  const size_t begin = at_;
  while (!AtEnd() && (absl::ascii_isalnum(static_cast<unsigned char>(Peek())) || Peek() == '-' ||
                      Peek() == '_')) {
    ++at_;
  }
  return text_.substr(begin, at_ - begin);
}

Parser::Name& Parser::Refer(std::string_view name, size_t position) {
  const auto [it, is_new] = names_.try_emplace(std::string(name));
  if (is_new) {
    it->second = {.rule = tree_.rules.size(), .position = position};
    tree_.rules.push_back({.name = std::string(name)});
  }
  return it->second;
}

absl::StatusOr<GbnfTree> Parser::Parse() {
  SkipSpace(true);
  while (!AtEnd()) {
    SL_RETURN_IF_ERROR(ParseRule());
    SkipSpace(true);
  }
  for (const GbnfRule& rule : tree_.rules) {
    const Name& name = names_.at(rule.name);
    if (!name.is_defined) {
      return ErrorAt(name.position, absl::StrCat("there is no rule '", rule.name, "'"));
    }
  }
  const auto root = names_.find("root");
  if (root == names_.end()) return Error("there is no rule 'root'");
  tree_.root = root->second.rule;
  return std::move(tree_);
}

absl::Status Parser::ParseRule() {
  const size_t begin = at_;
  const std::string_view name = ParseName();
  if (name.empty()) return Error("a rule begins with its name");
  SkipSpace(false);
  if (text_.substr(at_, 3) != "::=") return Error("'::=' belongs behind the name of a rule");
  at_ += 3;
  Name& known = Refer(name, begin);
  const size_t rule = known.rule;
  if (known.is_defined) {
    return ErrorAt(begin, absl::StrCat("rule '", std::string(name), "' is there twice"));
  }
  known.is_defined = true;
  SL_ASSIGN_OR_RETURN(tree_.rules[rule].body, ParseAlternatives(0));
  if (!AtEnd() && Peek() != '\n' && Peek() != '\r') {
    return Error(Peek() == ')' ? "')' without '('" : "this begins nothing a rule may hold");
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Parser::ParseAlternatives(int nesting) {
  if (nesting > kGbnfNestingMax) {
    return Error(absl::StrCat("groups are nested more than ", kGbnfNestingMax, " deep"));
  }
  GbnfNode choice{.kind = Kind::kChoice};
  do {
    SkipSpace(/*over_lines=*/true);
    SL_ASSIGN_OR_RETURN(const size_t sequence, ParseSequence(nesting));
    choice.children.push_back(sequence);
    SkipToNextAlternative();
  } while (Take('|'));
  return choice.children.size() == 1 ? choice.children.front() : Add(std::move(choice));
}

absl::StatusOr<size_t> Parser::ParseSequence(int nesting) {
  GbnfNode sequence{.kind = Kind::kSequence};
  while (true) {
    SL_ASSIGN_OR_RETURN(const std::optional<size_t> item, ParseItem(nesting));
    if (!item) break;
    SL_ASSIGN_OR_RETURN(const size_t repeated, ParseRepeat(*item));
    sequence.children.push_back(repeated);
    SkipSpace(/*over_lines=*/nesting > 0);
  }
  return sequence.children.size() == 1 ? sequence.children.front() : Add(std::move(sequence));
}

// Nothing where no item begins: an alternative may be empty.
absl::StatusOr<std::optional<size_t>> Parser::ParseItem(int nesting) {
  const size_t begin = at_;
  if (AtEnd()) return std::nullopt;
  switch (Peek()) {
    case '"': {
      SL_ASSIGN_OR_RETURN(const size_t literal, ParseLiteral());
      return literal;
    }
    case '[': {
      SL_ASSIGN_OR_RETURN(const size_t set, ParseClass());
      return set;
    }
    case '.':
      ++at_;
      return Add({.kind = Kind::kClass, .set = Complement({})});
    case '(': {
      ++at_;
      SL_ASSIGN_OR_RETURN(const size_t group, ParseAlternatives(nesting + 1));
      SkipSpace(true);
      if (!Take(')')) return ErrorAt(begin, "this '(' is never closed");
      return group;
    }
    case '*':
    case '+':
    case '?':
    case '{':
      return Error(
          absl::StrCat("there is nothing before '", std::string(1, Peek()), "' to repeat"));
    default:
      break;
  }
  const std::string_view name = ParseName();
  if (name.empty()) return std::nullopt;
  return Add({.kind = Kind::kRule, .rule = Refer(name, begin).rule});
}

absl::StatusOr<size_t> Parser::ParseRepeat(size_t item) {
  for (int repeats = 0;; ++repeats) {
    if (repeats > kRepeatsMax) return Error("too many repetitions of repetitions");
    GbnfNode repeat{.kind = Kind::kRepeat, .children = {item}, .max = GbnfNode::kEndless};
    if (Take('?')) {
      repeat.max = 1;
    } else if (Take('+')) {
      repeat.min = 1;
    } else if (Take('{')) {
      SL_RETURN_IF_ERROR(ParseBounds(&repeat));
    } else if (!Take('*')) {
      return item;
    }
    item = Add(std::move(repeat));
  }
}

absl::Status Parser::ParseBounds(GbnfNode* repeat) {
  const size_t begin = at_ - 1;
  SkipSpace(false);
  SL_ASSIGN_OR_RETURN(repeat->min, ParseNumber());
  repeat->max = repeat->min;
  SkipSpace(false);
  if (Take(',')) {
    SkipSpace(false);
    repeat->max = GbnfNode::kEndless;
    if (absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) {
      SL_ASSIGN_OR_RETURN(repeat->max, ParseNumber());
    }
    SkipSpace(false);
  }
  if (!Take('}')) return Error("a repetition is {m}, {m,} or {m,n}");
  if (repeat->max < repeat->min)
    return ErrorAt(begin, "a repetition of at most less than at least");
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Parser::ParseNumber() {
  const size_t begin = at_;
  uint32_t number = 0;
  while (absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) {
    if (at_ - begin >= 9) return ErrorAt(begin, "a repetition beyond all limits");
    number = number * 10 + static_cast<uint32_t>(Peek() - '0');
    ++at_;
  }
  if (at_ == begin) return Error("a repetition is {m}, {m,} or {m,n}");
  return number;
}

absl::StatusOr<size_t> Parser::ParseLiteral() {
  const size_t begin = at_++;
  GbnfNode literal{.kind = Kind::kLiteral};
  while (!Take('"')) {
    if (AtEnd()) return ErrorAt(begin, "this literal is never closed");
    const size_t position = at_;
    SL_ASSIGN_OR_RETURN(const uint32_t code_point, ParseCharacter());
    if (code_point >= 0xD800 && code_point <= 0xDFFF) {
      return ErrorAt(position, "a surrogate is no character");
    }
    AppendUtf8(code_point, &literal.bytes);
  }
  return Add(std::move(literal));
}

absl::StatusOr<size_t> Parser::ParseClass() {
  const size_t begin = at_++;
  const bool is_negated = Take('^');
  CodePoints set;
  while (!Take(']')) {
    if (AtEnd()) return ErrorAt(begin, "this '[' is never closed");
    const size_t position = at_;
    CodePointRange range;
    SL_ASSIGN_OR_RETURN(range.low, ParseCharacter());
    range.high = range.low;
    if (Peek() == '-' && at_ + 1 < text_.size() && Peek(1) != ']') {
      ++at_;
      SL_ASSIGN_OR_RETURN(range.high, ParseCharacter());
    }
    if (range.high < range.low) return ErrorAt(position, "a range that runs backwards");
    set.push_back(range);
  }
  return Add({.kind = Kind::kClass, .set = is_negated ? Complement(set) : Normalised(set)});
}

absl::StatusOr<uint32_t> Parser::ParseCharacter() {
  const size_t begin = at_;
  if (Peek() != '\\') {
    const int32_t code_point = NextCodePoint(text_, &at_);
    if (code_point < 0 || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
      return ErrorAt(begin, "this is not UTF-8");
    }
    return static_cast<uint32_t>(code_point);
  }
  ++at_;
  const char escaped = Peek();
  ++at_;
  switch (escaped) {
    case 'x':
      return ParseHex(2);
    case 'u':
      return ParseHex(4);
    case 'U':
      return ParseHex(8);
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '\\':
    case '"':
    case '[':
    case ']':
      return static_cast<uint32_t>(escaped);
    default:
      return ErrorAt(begin, "an unknown escape");
  }
}

absl::StatusOr<uint32_t> Parser::ParseHex(int digits) {
  const size_t begin = at_;
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const auto c = static_cast<unsigned char>(Peek());
    if (AtEnd() || !absl::ascii_isxdigit(c)) {
      return ErrorAt(begin, absl::StrCat("this escape wants ", digits, " hexadecimal digits"));
    }
    const int digit = absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  if (value > kCodePointMax) return ErrorAt(begin, "this is beyond U+10FFFF");
  return value;
}

}  // namespace

absl::StatusOr<GbnfTree> ParseGbnf(std::string_view text) { return Parser(text).Parse(); }

}  // namespace shardline
