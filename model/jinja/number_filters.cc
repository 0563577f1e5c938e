// Filters that make numbers, and `default`.

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "model/jinja/filters.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace shardline::jinja {
namespace {

// Digits without the underscores that may join them; nothing if they stand elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

// As Python's int(text, base): blanks around, a sign, a prefix that fits the base.
absl::StatusOr<std::optional<int64_t>> ReadInteger(std::string_view text, int base) {
  text = StripRight(StripLeft(text));
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    if ((letter == 'x' && base == 16) || (letter == 'o' && base == 8) ||
        (letter == 'b' && base == 2)) {
      text.remove_prefix(2);
    }
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty() || digits->front() == '-') return std::nullopt;
  const std::string number = (is_negative ? "-" : "") + *digits;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (end != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return Fault({"the number is too large"});
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> ReadFloat(std::string_view text) {
  const std::optional<std::string> digits = WithoutUnderscores(StripRight(StripLeft(text)));
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  const std::string word = Lower(*digits);
  const size_t sign = word[0] == '-' || word[0] == '+' ? 1 : 0;
  const std::string_view unsigned_word = std::string_view(word).substr(sign);
  const double factor = word[0] == '-' ? -1 : 1;
  if (unsigned_word == "inf" || unsigned_word == "infinity") {
    return factor * std::numeric_limits<double>::infinity();
  }
  if (unsigned_word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word.find_first_not_of("0123456789.e+-") != word.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (end != word.c_str() + word.size()) return std::nullopt;
  return value;
}

absl::StatusOr<Value> Truncated(double number) {
  constexpr double kLimit = 9.2e18;
  if (!(std::abs(number) < kLimit)) return Fault({"the number is too large"});
  return Value::Int(static_cast<int64_t>(number));
}

absl::StatusOr<Value> ToInteger(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "int", {"default", "base"}));
  SL_ASSIGN_OR_RETURN(const int64_t base, bound.IntegerOr(1, 10));
  if (base < 2 || base > 36) return Fault({"int: the base must lie between 2 and 36"});
  if (input.Is(Kind::kUndefined)) return Fault({input.why_undefined()});
  if (input.IsInteger()) return Value::Int(input.as_int());
  if (input.Is(Kind::kFloat)) return Truncated(input.as_float());
  if (!input.Is(Kind::kText)) return bound.Or(0, Value::Int(0));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(input.bytes().size()));
  SL_ASSIGN_OR_RETURN(const std::optional<int64_t> integer,
                      ReadInteger(input.bytes(), static_cast<int>(base)));
  if (integer.has_value()) return Value::Int(*integer);
  const std::optional<double> number = ReadFloat(input.bytes());
  if (!number.has_value() || !std::isfinite(*number)) return bound.Or(0, Value::Int(0));
  return Truncated(*number);
}

absl::StatusOr<Value> ToFloat(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "float", {"default"}));
  if (input.Is(Kind::kUndefined)) return Fault({input.why_undefined()});
  if (input.IsNumber()) return Value::Float(input.as_float());
  std::optional<double> number;
  if (input.Is(Kind::kText)) {
    SL_RETURN_IF_ERROR(runtime.meter.Spend(input.bytes().size()));
    number = ReadFloat(input.bytes());
  }
  if (number.has_value()) return Value::Float(*number);
  return bound.Or(0, Value::Float(0));
}

absl::StatusOr<Value> Absolute(Runtime&, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "abs", {}).status());
  if (input.IsInteger()) return input.as_int() < 0 ? Negate(input) : Value::Int(input.as_int());
  if (input.Is(Kind::kFloat)) return Value::Float(std::abs(input.as_float()));
  return Fault({"abs takes a number, not ", TypeName(input)});
}

// To `digits` behind the point, halves to even, by the exact value of the number.
double RoundedCommonly(double number, int digits) {
  char text[512];
  std::snprintf(text, sizeof(text), "%.*f", digits, number);
  return std::strtod(text, nullptr);
}

absl::StatusOr<Value> Round(Runtime&, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "round", {"precision", "method"}));
  SL_ASSIGN_OR_RETURN(const int64_t precision, bound.IntegerOr(0, 0));
  SL_ASSIGN_OR_RETURN(const std::string method, bound.TextOr(1, "common"));
  if (!input.IsNumber()) return Fault({"round takes a number, not ", TypeName(input)});
  constexpr int64_t kDigitsMax = 100;
  if (precision < 0 || precision > kDigitsMax) {
    return Fault({"round: the precision must lie between 0 and 100"});
  }
  if (method == "common") {
    if (input.IsInteger()) return Value::Int(input.as_int());
    if (!std::isfinite(input.as_float())) return input;
    return Value::Float(RoundedCommonly(input.as_float(), static_cast<int>(precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::Float(std::ceil(input.as_float() * scale) / scale);
  if (method == "floor") return Value::Float(std::floor(input.as_float() * scale) / scale);
  return Fault({"round: the method must be common, ceil or floor"});
}

absl::StatusOr<Value> Length(Runtime&, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "length", {}).status());
  SL_ASSIGN_OR_RETURN(const int64_t length, LengthOf(input));
  return Value::Int(length);
}

absl::StatusOr<Value> Default(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "default", {"default_value", "boolean"}));
  if (!input.Is(Kind::kUndefined) && !(bound.IsTrueAt(1) && !IsTrue(input))) return input;
  return bound.Or(0, Value::OfText(&runtime.meter, ""));
}

struct Entry {
  std::string_view name;
  Builtin function;
};

constexpr Entry kFilters[] = {{"int", ToInteger},   {"float", ToFloat}, {"abs", Absolute},
                              {"round", Round},     {"length", Length}, {"count", Length},
                              {"default", Default}, {"d", Default}};

}  // namespace

Builtin FindNumberFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace shardline::jinja
