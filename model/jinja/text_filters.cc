// Filters that make text.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/jinja/attributes.h"
#include "model/jinja/filters.h"
#include "model/jinja/format.h"
#include "model/jinja/json_text.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace shardline::jinja {
namespace {

// The text of any value; a text stays as it is, safe or not.
absl::StatusOr<Value> Softened(Runtime& runtime, const Value& value) {
  if (value.Is(Kind::kText)) return value;
  SL_RETURN_IF_ERROR(runtime.meter.Spend(value.extent().weight));
  SL_RETURN_IF_ERROR(runtime.meter.Fits(value.extent().weight));
  SL_ASSIGN_OR_RETURN(std::string text, TextOf(value));
  return Value::OfText(&runtime.meter, std::move(text));
}

absl::StatusOr<Value> CallMethod(Runtime& runtime, const Value& input, Arguments& arguments,
                                 std::string_view method) {
  SL_ASSIGN_OR_RETURN(const Value text, Softened(runtime, input));
  return FindTextMethod(method)(runtime, text, arguments);
}

absl::StatusOr<Value> String(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "string", {}).status());
  return Softened(runtime, input);
}

absl::StatusOr<Value> Safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "safe", {}).status());
  SL_ASSIGN_OR_RETURN(const Value text, Softened(runtime, input));
  return Value::OfText(&runtime.meter, text.bytes(), /*is_markup=*/true);
}

absl::StatusOr<Value> Escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "escape", {}).status());
  SL_ASSIGN_OR_RETURN(const Value text, Softened(runtime, input));
  if (text.text().is_markup) return text;
  return Value::OfText(&runtime.meter, EscapeHtml(text.bytes()), /*is_markup=*/true);
}

absl::StatusOr<Value> UpperCase(Runtime& runtime, const Value& input, Arguments& arguments) {
  return CallMethod(runtime, input, arguments, "upper");
}
absl::StatusOr<Value> LowerCase(Runtime& runtime, const Value& input, Arguments& arguments) {
  return CallMethod(runtime, input, arguments, "lower");
}
absl::StatusOr<Value> Capitalize(Runtime& runtime, const Value& input, Arguments& arguments) {
  return CallMethod(runtime, input, arguments, "capitalize");
}
absl::StatusOr<Value> Trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  return CallMethod(runtime, input, arguments, "strip");
}

absl::StatusOr<Value> CenterText(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "center", {"width"}));
  constexpr int64_t kWidth = 80;
  Arguments width = {.positional = {bound.Or(0, Value::Int(kWidth))}};
  return CallMethod(runtime, input, width, "center");
}

// Words begin after blanks, hyphens and opening brackets; unlike str.title not after digits.
absl::StatusOr<Value> Title(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "title", {}).status());
  SL_ASSIGN_OR_RETURN(const Value value, Softened(runtime, input));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(value.bytes().size()));
  const std::string_view text = value.bytes();
  constexpr std::string_view kBreaks = "-({[<";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const auto is_break = [&](size_t* at) {
      const char32_t c = NextCodePoint(text, at);
      return IsSpace(c) || (c < 0x80 && kBreaks.find(static_cast<char>(c)) != kBreaks.npos);
    };
    if (is_break(&i)) {
      out += text.substr(start, i - start);
      continue;
    }
    const size_t behind_first = i;
    size_t end = i;
    while (i < text.size() && !is_break(&i)) end = i;
    i = end;
    out += Upper(text.substr(start, behind_first - start));
    out += Lower(text.substr(behind_first, end - behind_first));
  }
  return Value::OfText(&runtime.meter, std::move(out));
}

absl::StatusOr<Value> Replace(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "replace", {"old", "new", "count"}, 2));
  SL_ASSIGN_OR_RETURN(const Value text, Softened(runtime, input));
  const Value plain = Value::OfText(&runtime.meter, text.bytes());
  Arguments passed;
  for (const size_t i : {0, 1}) {
    SL_ASSIGN_OR_RETURN(const Value argument, Softened(runtime, bound[i]));
    passed.positional.push_back(argument);
  }
  if (bound.Has(2)) passed.positional.push_back(bound[2]);
  return FindTextMethod("replace")(runtime, plain, passed);
}

absl::StatusOr<Value> Indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "indent", {"width", "first", "blank"}));
  if (!input.Is(Kind::kText)) return Fault({"indent takes str, not ", TypeName(input)});
  std::string indention;
  if (bound.Has(0) && bound[0].Is(Kind::kText)) {
    indention = bound[0].bytes();
  } else {
    SL_ASSIGN_OR_RETURN(const int64_t width, bound.IntegerOr(0, 4));
    SL_RETURN_IF_ERROR(runtime.meter.Fits(width < 0 ? 0 : static_cast<size_t>(width)));
    if (width > 0) indention.assign(static_cast<size_t>(width), ' ');
  }
  // A newline at the end starts a last line that is empty.
  const std::string whole = input.bytes() + "\n";
  const std::vector<std::string_view> lines = SplitLines(whole, /*keep_ends=*/false);
  SL_RETURN_IF_ERROR(runtime.meter.Spend(lines.size()));
  size_t added = 0;
  if (__builtin_mul_overflow(lines.size(), indention.size() + 1, &added)) added = SIZE_MAX;
  SL_RETURN_IF_ERROR(runtime.meter.Fits(added));
  const bool indents_blank = bound.IsTrueAt(2);
  std::string out = bound.IsTrueAt(1) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (indents_blank || !lines[i].empty()) out += indention;
    }
    out += lines[i];
  }
  return Value::OfText(&runtime.meter, std::move(out), input.text().is_markup);
}

absl::StatusOr<Value> Format(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Value text, Softened(runtime, input));
  if (!arguments.named.empty()) {
    if (!arguments.positional.empty()) return Fault({"format takes one kind of arguments"});
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : arguments.named) {
      entries.emplace_back(Value::OfText(&runtime.meter, name), std::move(value));
    }
    SL_ASSIGN_OR_RETURN(const Value named, Value::OfEntries(&runtime.meter, std::move(entries)));
    return FormatPercent(runtime.meter, text.text(), named);
  }
  return FormatPercent(runtime.meter, text.text(),
                       Value::Tuple(&runtime.meter, std::move(arguments.positional)));
}

absl::StatusOr<std::optional<std::string>> IndentOf(const Bound& bound, size_t index) {
  constexpr int64_t kMost = 100;
  if (!bound.Has(index) || bound[index].Is(Kind::kNone)) return std::nullopt;
  const Value& indent = bound[index];
  if (indent.Is(Kind::kText) && indent.bytes().size() <= kMost) return indent.bytes();
  if (!indent.IsInteger() || indent.as_int() > kMost) {
    return Fault({"tojson: the indent must be a small number or a short str"});
  }
  return std::string(indent.as_int() < 0 ? 0 : static_cast<size_t>(indent.as_int()), ' ');
}

absl::Status ReadSeparators(const Value& separators, JsonStyle* style) {
  const bool is_pair = separators.Is(Kind::kSequence) && separators.sequence().items.size() == 2 &&
                       separators.sequence().items[0].Is(Kind::kText) &&
                       separators.sequence().items[1].Is(Kind::kText);
  if (!is_pair) return Fault({"tojson: separators must be two str"});
  style->item_separator = separators.sequence().items[0].bytes();
  style->key_separator = separators.sequence().items[1].bytes();
  return absl::OkStatus();
}

absl::StatusOr<Value> ToJsonText(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.IsTrueAt(0);
  style.sort_keys = bound.IsTrueAt(3);
  SL_ASSIGN_OR_RETURN(style.indent, IndentOf(bound, 1));
  if (style.indent.has_value()) style.item_separator = ",";
  if (bound.Has(2) && !bound[2].Is(Kind::kNone)) {
    SL_RETURN_IF_ERROR(ReadSeparators(bound[2], &style));
  }
  SL_ASSIGN_OR_RETURN(std::string json, ToJson(runtime.meter, input, style));
  return Value::OfText(&runtime.meter, std::move(json));
}

struct Entry {
  std::string_view name;
  Builtin function;
};

constexpr Entry kFilters[] = {
    {"string", String},     {"safe", Safe},        {"escape", Escape},         {"e", Escape},
    {"upper", UpperCase},   {"lower", LowerCase},  {"capitalize", Capitalize}, {"title", Title},
    {"trim", Trim},         {"replace", Replace},  {"indent", Indent},         {"format", Format},
    {"tojson", ToJsonText}, {"center", CenterText}};

}  // namespace

Builtin FindTextFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace shardline::jinja
