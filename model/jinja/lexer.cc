#include "model/jinja/lexer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "model/jinja/fault.h"
#include "model/jinja/text.h"

namespace shardline::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || IsDigit(c);
}

// All newlines as '\n', the last one gone.
std::string Normalised(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) SL_RETURN_IF_ERROR(ReadTextAndTag());
    Add(TokenKind::kEnd, at_, "");
    return std::move(tokens_);
  }

 private:
  // What follows `at` without the tag's sign.
  bool HasAt(size_t at, std::string_view symbol) const {
    return source_.compare(at, symbol.size(), symbol) == 0;
  }

  Position PositionOf(size_t offset) {
    for (; counted_ < offset; ++counted_) {
      const auto byte = static_cast<unsigned char>(source_[counted_]);
      if (byte == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
    return position_;
  }

  absl::Status Failed(size_t offset, std::string_view what) {
    return FaultAt(offset < counted_ ? position_ : PositionOf(offset), what);
  }

  void Add(TokenKind kind, size_t offset, std::string text) {
    tokens_.push_back({kind, PositionOf(offset), std::move(text)});
  }

  size_t SkipSpace(size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return at + rest.size() - StripLeft(rest).size();
  }

  size_t FindTag(size_t from) const {
    size_t at = source_.find('{', from);
    while (at != source_.npos && !HasAt(at, "{{") && !HasAt(at, "{%") && !HasAt(at, "{#")) {
      at = source_.find('{', at + 1);
    }
    return at;
  }

  // Text up to `end`, less the white space that the tag there takes off. `sign` is the tag's.
  void AddText(size_t end, char sign, bool is_print) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;  // 0 where there is none.
      const bool starts_line = line > 0 || line_starting_;
      if (starts_line && StripLeft(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) Add(TokenKind::kText, at_, std::string(text));
  }

  absl::Status ReadTextAndTag() {
    const size_t tag = FindTag(at_);
    if (tag == source_.npos) {
      Add(TokenKind::kText, at_, source_.substr(at_));
      at_ = source_.size();
      return absl::OkStatus();
    }
    const char type = source_[tag + 1];
    size_t next = tag + 2;
    char sign = 0;
    if (next < source_.size() && (source_[next] == '-' || source_[next] == '+')) {
      sign = source_[next++];
    }
    AddText(tag, sign, type == '{');
    line_starting_ = false;
    at_ = next;
    if (type == '#') return SkipComment(tag);
    if (type == '%') {
      if (const std::optional<size_t> behind = RawBegin(next)) return ReadRaw(tag, *behind);
      Add(TokenKind::kBlockBegin, tag, "");
      return ReadTag(tag, "%}", TokenKind::kBlockEnd);
    }
    Add(TokenKind::kPrintBegin, tag, "");
    return ReadTag(tag, "}}", TokenKind::kPrintEnd);
  }

  // Goes behind the end of a tag at `end`, with what its sign takes off. `trims` for blocks and
  // comments: the newline behind goes.
  void PassEnd(size_t end, char sign, bool trims) {
    at_ = end;
    if (sign == '-') {
      at_ = SkipSpace(end);
    } else if (sign != '+' && trims && HasAt(end, "\n")) {
      ++at_;
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  absl::Status SkipComment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return Failed(tag, "the comment does not end");
    const char before = end > at_ ? source_[end - 1] : '\0';
    PassEnd(end + 2, before == '-' || before == '+' ? before : '\0', /*trims=*/true);
    return absl::OkStatus();
  }

  // Behind `raw %}` at `at`, if that is what stands there.
  std::optional<size_t> RawBegin(size_t at) const {
    at = SkipSpace(at);
    if (!HasAt(at, "raw")) return std::nullopt;
    at = SkipSpace(at + 3);
    if (HasAt(at, "-%}")) return SkipSpace(at + 3);
    if (HasAt(at, "%}")) return at + 2;
    return std::nullopt;
  }

  absl::Status ReadRaw(size_t tag, size_t begin) {
    at_ = begin;
    line_starting_ = source_[begin - 1] == '\n';
    for (size_t end = source_.find("{%", begin); end != source_.npos;
         end = source_.find("{%", end + 1)) {
      size_t at = end + 2;
      char sign = 0;
      if (HasAt(at, "-") || HasAt(at, "+")) sign = source_[at++];
      at = SkipSpace(at);
      if (!HasAt(at, "endraw")) continue;
      at = SkipSpace(at + 6);
      char end_sign = 0;
      if (HasAt(at, "-%}") || HasAt(at, "+%}")) end_sign = source_[at++];
      if (!HasAt(at, "%}")) continue;
      AddText(end, sign, /*is_print=*/false);
      PassEnd(at + 2, end_sign, /*trims=*/true);
      return absl::OkStatus();
    }
    return Failed(tag, "'raw' does not end");
  }

  // The tokens of a tag up to its end. An end inside of brackets is none.
  absl::Status ReadTag(size_t tag, std::string_view end, TokenKind end_kind) {
    std::string open;  // Brackets that wait for their match.
    while (true) {
      at_ = SkipSpace(at_);
      if (at_ >= source_.size()) return Failed(tag, "the tag does not end");
      if (open.empty()) {
        char sign = 0;
        if (HasAt(at_, "-") || (HasAt(at_, "+") && end == "%}")) sign = source_[at_];
        const size_t at = at_ + (sign == 0 ? 0 : 1);
        if (HasAt(at, end)) {
          Add(end_kind, at_, "");
          PassEnd(at + 2, sign, /*trims=*/end == "%}");
          return absl::OkStatus();
        }
      }
      SL_RETURN_IF_ERROR(ReadToken(&open));
    }
  }

  absl::Status ReadToken(std::string* open) {
    const char c = source_[at_];
    if (IsDigit(c)) return ReadNumber();
    if (IsNameByte(c)) {
      const size_t start = at_;
      while (at_ < source_.size() && IsNameByte(source_[at_])) ++at_;
      Add(TokenKind::kName, start, source_.substr(start, at_ - start));
      return absl::OkStatus();
    }
    if (c == '\'' || c == '"') return ReadString();
    return ReadOperator(open);
  }

  absl::Status ReadOperator(std::string* open) {
    for (const std::string_view symbol :
         {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
          "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      if (!HasAt(at_, symbol)) continue;
      SL_RETURN_IF_ERROR(Balance(symbol[0], open));
      Add(TokenKind::kOperator, at_, std::string(symbol));
      at_ += symbol.size();
      return absl::OkStatus();
    }
    size_t end = at_;
    NextCodePoint(source_, &end);
    return Failed(at_, Join({"unexpected character ", Quoted(source_.substr(at_, end - at_))}));
  }

  absl::Status Balance(char symbol, std::string* open) {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(symbol) != kOpening.npos) *open += symbol;
    const size_t closes = kClosing.find(symbol);
    if (closes == kClosing.npos) return absl::OkStatus();
    if (open->empty() || open->back() != kOpening[closes]) {
      return Failed(at_, Join({"unexpected '", source_.substr(at_, 1), "'"}));
    }
    open->pop_back();
    return absl::OkStatus();
  }

  // Digits, single underscores between them, from `at`; where they end.
  size_t PassDigits(size_t at, std::string_view digits) const {
    while (at < source_.size()) {
      if (digits.find(source_[at]) == digits.npos) {
        const bool joins = source_[at] == '_' && at + 1 < source_.size() &&
                           digits.find(source_[at + 1]) != digits.npos;
        if (!joins) break;
      }
      ++at;
    }
    return at;
  }

  absl::Status ReadNumber() {
    constexpr std::string_view kDecimal = "0123456789";
    const size_t start = at_;
    TokenKind kind = TokenKind::kInteger;
    const char base = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      const std::string_view digits = base == 'x'   ? "0123456789abcdefABCDEF"
                                      : base == 'o' ? "01234567"
                                                    : "01";
      at_ = PassDigits(at_ + 2, digits);
    } else {
      at_ = PassDigits(at_, kDecimal);
      // After a dot, as in `list.0.1`, there is no fraction.
      const bool is_part = start > 0 && source_[start - 1] == '.';
      if (!is_part && HasAt(at_, ".") && at_ + 1 < source_.size() && IsDigit(source_[at_ + 1])) {
        at_ = PassDigits(at_ + 1, kDecimal);
        kind = TokenKind::kFloat;
      }
      if (!is_part && (HasAt(at_, "e") || HasAt(at_, "E"))) {
        size_t exponent = at_ + 1;
        if (HasAt(exponent, "+") || HasAt(exponent, "-")) ++exponent;
        if (exponent < source_.size() && IsDigit(source_[exponent])) {
          at_ = PassDigits(exponent, kDecimal);
          kind = TokenKind::kFloat;
        }
      }
    }
    std::string text = source_.substr(start, at_ - start);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (at_ < source_.size() && IsNameByte(source_[at_])) {
      return Failed(start, "a number runs into a name");
    }
    Add(kind, start, std::move(text));
    return absl::OkStatus();
  }

  absl::Status ReadString() {
    const size_t start = at_;
    const char quote = source_[at_++];
    std::string text;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\') {
        SL_RETURN_IF_ERROR(ReadEscape(&text));
      } else {
        text += source_[at_++];
      }
    }
    if (at_ == source_.size()) return Failed(start, "the string does not end");
    ++at_;
    Add(TokenKind::kString, start, std::move(text));
    return absl::OkStatus();
  }

  absl::Status ReadEscape(std::string* text) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
    const size_t start = at_++;
    if (at_ == source_.size()) return absl::OkStatus();  // The string does not end either.
    const char c = source_[at_++];
    if (c == '\n') return absl::OkStatus();
    const size_t letter = kLetters.find(c);
    if (letter != kLetters.npos) {
      *text += kMeant[letter];
      return absl::OkStatus();
    }
    if (c >= '0' && c <= '7') {
      --at_;
      return AppendNumbered(start, 8, 1, 3, text);
    }
    if (c == 'x') return AppendNumbered(start, 16, 2, 2, text);
    if (c == 'u') return AppendNumbered(start, 16, 4, 4, text);
    if (c == 'U') return AppendNumbered(start, 16, 8, 8, text);
    if (c == 'N') return Failed(start, "characters by name (\\N) are not supported");
    *text += '\\';  // Python keeps what it does not know.
    *text += c;
    return absl::OkStatus();
  }

  absl::Status AppendNumbered(size_t start, unsigned base, int digits_min, int digits_max,
                              std::string* text) {
    char32_t code_point = 0;
    int digits = 0;
    for (; digits < digits_max && at_ < source_.size(); ++digits, ++at_) {
      const char c = static_cast<char>(source_[at_] | 0x20);
      unsigned digit = 16;
      if (IsDigit(source_[at_])) digit = static_cast<unsigned>(source_[at_] - '0');
      if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a' + 10);
      if (digit >= base) break;
      code_point = code_point * base + digit;
    }
    const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
    if (digits < digits_min || code_point > 0x10FFFF || is_surrogate) {
      return Failed(start, "the escape is no character");
    }
    AppendUtf8(code_point, text);
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  bool line_starting_ = true;  // `at_` is where a line starts.
  std::vector<Token> tokens_;

  // Where counting lines has got to.
  size_t counted_ = 0;
  Position position_;
};

}  // namespace

absl::Status FaultAt(const Position& at, std::string_view what) {
  return Fault({std::to_string(at.line), ":", std::to_string(at.column), ": ", what});
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kSourceBytesMax) return FaultAt({}, "the template is too long");
  if (!IsUtf8(source)) return FaultAt({}, "the template is not valid UTF-8");
  return Lexer(Normalised(source)).Run();
}

}  // namespace shardline::jinja
