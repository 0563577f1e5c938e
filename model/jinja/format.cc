#include "model/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/status_macros.h"
#include "model/jinja/text.h"

namespace shardline::jinja {
namespace {

constexpr int kWidthMax = 10'000;

absl::StatusOr<std::string> ReprOfItems(const Sequence& sequence) {
  std::string out;
  for (const Value& item : sequence.items) {
    if (!out.empty()) out += ", ";
    SL_ASSIGN_OR_RETURN(const std::string shown, ReprOf(item));
    out += shown;
  }
  return out;
}

absl::StatusOr<std::string> ReprOfSequence(const Value& value) {
  const Sequence& sequence = value.sequence();
  if (sequence.form == Sequence::Form::kGenerator || sequence.form == Sequence::Form::kRange) {
    return Fault({"a ", TypeName(value), " cannot be shown: make it a list first"});
  }
  SL_ASSIGN_OR_RETURN(const std::string items, ReprOfItems(sequence));
  if (sequence.form == Sequence::Form::kList) return Join({"[", items, "]"});
  if (sequence.form == Sequence::Form::kTuple) {
    return Join({"(", items, sequence.items.size() == 1 ? ",)" : ")"});
  }
  return Join({TypeName(value), "([", items, "])"});
}

absl::StatusOr<std::string> ReprOfDict(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries) {
    if (out.size() > 1) out += ", ";
    SL_ASSIGN_OR_RETURN(const std::string shown_key, ReprOf(key));
    SL_ASSIGN_OR_RETURN(const std::string shown, ReprOf(value));
    out += Join({shown_key, ": ", shown});
  }
  return out += "}";
}

// One conversion of a `%` format.
struct Directive {
  std::string flags;
  int width = 0;
  int precision = -1;
  char type = 0;

  bool Has(char flag) const { return flags.find(flag) != std::string::npos; }
};

absl::StatusOr<int> ReadNumber(std::string_view format, size_t* at) {
  int number = 0;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    number = number * 10 + (format[*at] - '0');
    if (number > kWidthMax) return Fault({"a width in a format is too large"});
  }
  return number;
}

absl::StatusOr<Directive> ReadDirective(std::string_view format, size_t* at) {
  Directive directive;
  while (*at < format.size() && std::string_view("-+ 0#").find(format[*at]) != std::string::npos) {
    if (!directive.Has(format[*at])) directive.flags += format[*at];
    ++*at;
  }
  SL_ASSIGN_OR_RETURN(directive.width, ReadNumber(format, at));
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    SL_ASSIGN_OR_RETURN(directive.precision, ReadNumber(format, at));
  }
  if (*at == format.size()) return Fault({"incomplete format"});
  directive.type = format[(*at)++];
  return directive;
}

std::string Printed(const Directive& directive, const char* length_and_type, auto value) {
  std::string format = "%" + directive.flags;
  if (directive.width > 0) format += std::to_string(directive.width);
  if (directive.precision >= 0) format += "." + std::to_string(directive.precision);
  format += length_and_type;
  const int size = std::snprintf(nullptr, 0, format.c_str(), value);
  std::string out(static_cast<size_t>(std::max(0, size)) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), value);
  out.pop_back();
  return out;
}

absl::StatusOr<int64_t> Truncated(const Value& value) {
  if (value.IsInteger()) return value.as_int();
  if (!value.Is(Kind::kFloat)) return Fault({"%d takes a number, not ", TypeName(value)});
  constexpr double kLimit = 9.2e18;
  if (!(std::abs(value.as_float()) < kLimit)) return Fault({"the number is too large"});
  return static_cast<int64_t>(value.as_float());
}

std::string Padded(const Directive& directive, std::string text) {
  const size_t length = CodePointCount(text);
  const size_t width = static_cast<size_t>(directive.width);
  if (length >= width) return text;
  const std::string padding(width - length, ' ');
  return directive.Has('-') ? text + padding : padding + text;
}

absl::StatusOr<std::string> Converted(const Directive& directive, const Value& value) {
  switch (directive.type) {
    case 's':
    case 'r': {
      SL_ASSIGN_OR_RETURN(std::string text, directive.type == 's' ? TextOf(value) : ReprOf(value));
      if (directive.precision >= 0) {
        text.resize(OffsetOf(text, static_cast<size_t>(directive.precision)));
      }
      return Padded(directive, std::move(text));
    }
    case 'd':
    case 'i':
    case 'u': {
      SL_ASSIGN_OR_RETURN(const int64_t number, Truncated(value));
      return Printed(directive, "ld", number);
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      if (!value.IsNumber()) return Fault({"a format takes a number, not ", TypeName(value)});
      const char type[] = {directive.type, '\0'};
      return Printed(directive, type, value.as_float());
    }
    case 'x':
    case 'X':
    case 'o':
      if (!value.IsInteger() || value.as_int() < 0) {
        return Fault({"this format takes a non-negative integer"});
      }
      return Printed(directive,
                     directive.type == 'x'   ? "lx"
                     : directive.type == 'X' ? "lX"
                                             : "lo",
                     value.as_int());
    default:
      return Fault({"unsupported format character"});
  }
}

// Hands out the arguments of a `%` format.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& argument) : argument_(argument) {
    is_tuple_ = argument.Is(Kind::kSequence) && argument.sequence().form == Sequence::Form::kTuple;
  }

  absl::StatusOr<Value> Named(std::string_view name) {
    if (!argument_.Is(Kind::kDict)) return Fault({"format requires a mapping"});
    used_ = 1;
    const Value* found = argument_.dict().Find(name);
    if (found == nullptr) return Fault({"the format's arguments lack ", Quoted(name)});
    return *found;
  }

  absl::StatusOr<Value> Next() {
    const size_t count = is_tuple_ ? argument_.sequence().items.size() : 1;
    if (used_ == count) return Fault({"not enough arguments for the format"});
    ++used_;
    return is_tuple_ ? argument_.sequence().items[used_ - 1] : argument_;
  }

  bool HasRest() const {
    if (is_tuple_) return used_ < argument_.sequence().items.size();
    return used_ == 0 && !argument_.Is(Kind::kDict) && !argument_.Is(Kind::kSequence) &&
           !argument_.Is(Kind::kUndefined);
  }

 private:
  const Value& argument_;
  bool is_tuple_;
  size_t used_ = 0;
};

// The field of `{...}` up to its closing brace: a name or number, perhaps `!r` or `!s`.
absl::StatusOr<Value> FieldOf(std::string_view field, const Arguments& arguments, size_t* next) {
  if (field.empty() || field.find_first_not_of("0123456789") == field.npos) {
    size_t index = *next;
    if (field.empty()) {
      ++*next;
    } else {
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), index);
      if (error != std::errc() || end != field.data() + field.size()) index = SIZE_MAX;
    }
    if (index >= arguments.positional.size()) return Fault({"format lacks an argument"});
    return arguments.positional[index];
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return value;
  }
  return Fault({"format: nothing is named ", Quoted(field)});
}

absl::StatusOr<std::string> FilledField(std::string_view field, const Arguments& arguments,
                                        size_t* next) {
  bool as_repr = false;
  if (field.ends_with("!r") || field.ends_with("!s")) {
    as_repr = field.back() == 'r';
    field.remove_suffix(2);
  }
  if (field.find_first_of(".[:!{") != field.npos) {
    return Fault({"format: ", Quoted(field), " is not supported"});
  }
  SL_ASSIGN_OR_RETURN(const Value value, FieldOf(field, arguments, next));
  return as_repr ? ReprOf(value) : TextOf(value);
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* const number = shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(number, end, exponent);
  constexpr int kLowest = -4;
  constexpr int kHighest = 15;
  if (exponent < kLowest || exponent > kHighest) return std::string(shortest);
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed);
  if (out.find('.') == out.npos) out += ".0";
  return out;
}

absl::StatusOr<std::string> TextOf(const Value& value) {
  if (value.Is(Kind::kText)) return value.bytes();
  if (value.Is(Kind::kUndefined)) return std::string();
  return ReprOf(value);
}

absl::StatusOr<std::string> ReprOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::string("Undefined");
    case Kind::kNone:
      return std::string("None");
    case Kind::kBool:
      return std::string(value.as_bool() ? "True" : "False");
    case Kind::kInt:
      return std::to_string(value.as_int());
    case Kind::kFloat:
      return FloatText(value.as_float());
    case Kind::kText:
      if (value.text().is_markup) return Join({"Markup(", Quoted(value.bytes()), ")"});
      return Quoted(value.bytes());
    case Kind::kSequence:
      return ReprOfSequence(value);
    case Kind::kDict:
      return ReprOfDict(value.dict());
    case Kind::kCallable:
      if (!value.callable().shown.empty()) return value.callable().shown;
      break;
    default:
      break;
  }
  return Fault({"a ", TypeName(value), " cannot be shown"});
}

absl::StatusOr<Value> FormatPercent(Meter& meter, const Text& text, const Value& argument) {
  if (text.is_markup) return Fault({"% on text marked safe is not supported"});
  const std::string_view format = text.bytes;
  PercentArguments arguments(argument);
  std::string out;
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    ++i;
    std::string_view name;
    if (i < format.size() && format[i] == '(') {
      const size_t end = format.find(')', i);
      if (end == format.npos) return Fault({"incomplete format key"});
      name = format.substr(i + 1, end - i - 1);
      i = end + 1;
    }
    SL_ASSIGN_OR_RETURN(const Directive directive, ReadDirective(format, &i));
    if (directive.type == '%') {
      out += '%';
      continue;
    }
    SL_ASSIGN_OR_RETURN(const Value value,
                        name.data() == nullptr ? arguments.Next() : arguments.Named(name));
    SL_RETURN_IF_ERROR(meter.Spend(1 + value.extent().weight));
    SL_ASSIGN_OR_RETURN(const std::string converted, Converted(directive, value));
    SL_RETURN_IF_ERROR(meter.Fits(out.size() + converted.size()));
    out += converted;
  }
  if (arguments.HasRest()) return Fault({"not all arguments of the format are used"});
  return Value::OfText(&meter, std::move(out));
}

absl::StatusOr<Value> FormatBraces(Meter& meter, const Text& text, const Arguments& arguments) {
  if (text.is_markup) return Fault({"format on text marked safe is not supported"});
  const std::string_view format = text.bytes;
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    const size_t end = c == '{' ? format.find('}', i) : format.npos;
    if (end == format.npos) return Fault({"single '", format.substr(i, 1), "' in a format"});
    SL_ASSIGN_OR_RETURN(const std::string filled,
                        FilledField(format.substr(i + 1, end - i - 1), arguments, &next));
    SL_RETURN_IF_ERROR(meter.Spend(1 + filled.size() / 32));
    SL_RETURN_IF_ERROR(meter.Fits(out.size() + filled.size()));
    out += filled;
    i = end;
  }
  return Value::OfText(&meter, std::move(out));
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace shardline::jinja
