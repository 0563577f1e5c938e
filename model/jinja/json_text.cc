#include "model/jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/jinja/format.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"

namespace shardline::jinja {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<Value> TextFromJson(Meter& meter, const std::string& text) {
  if (!IsUtf8(text)) return Fault({"a string of the request is not valid UTF-8"});
  return Value::OfText(&meter, text);
}

// `depth` is how many levels may still follow.
absl::StatusOr<Value> FromJsonWithin(Meter& meter, const Json& json, int depth) {
  if (depth < 0) return Fault({"the request is nested too deeply"});
  SL_RETURN_IF_ERROR(meter.Spend(1));
  switch (json.type()) {
    case Json::value_t::null:
      return Value::None();
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Fault({"the number ", std::to_string(number), " is too large"});
      }
      return Value::Int(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return TextFromJson(meter, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        SL_ASSIGN_OR_RETURN(Value value, FromJsonWithin(meter, item, depth - 1));
        items.push_back(std::move(value));
      }
      return Value::List(&meter, std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [name, item] : json.items()) {
        SL_ASSIGN_OR_RETURN(Value key, TextFromJson(meter, name));
        SL_ASSIGN_OR_RETURN(Value value, FromJsonWithin(meter, item, depth - 1));
        entries.emplace_back(std::move(key), std::move(value));
      }
      return Value::OfEntries(&meter, std::move(entries));
    }
    default:
      return Fault({"the request holds something that is not JSON"});
  }
}

void AppendUnit(unsigned unit, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  *out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *out += kHex[(unit >> shift) & 15];
}

void AppendEscape(char32_t c, std::string* out) {
  if (c < 0x10000) return AppendUnit(c, out);
  AppendUnit(0xD800 + ((c - 0x10000) >> 10), out);
  AppendUnit(0xDC00 + ((c - 0x10000) & 0x3FF), out);
}

void AppendString(std::string_view text, bool ensure_ascii, std::string* out) {
  constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  *out += '"';
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, &i);
    const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : kNamed.npos;
    if (named != kNamed.npos) {
      *out += '\\';
      *out += kLetters[named];
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      AppendEscape(c, out);
    } else {
      AppendUtf8(c, out);
    }
  }
  *out += '"';
}

std::string NumberText(const Value& value) {
  if (!value.Is(Kind::kFloat)) return std::to_string(value.as_int());
  const double number = value.as_float();
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FloatText(number);
}

class Writer {
 public:
  Writer(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

  absl::Status Write(const Value& value) {
    SL_RETURN_IF_ERROR(meter_.Spend(1));
    SL_RETURN_IF_ERROR(meter_.Fits(out_.size()));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return absl::OkStatus();
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return absl::OkStatus();
      case Kind::kInt:
      case Kind::kFloat:
        out_ += NumberText(value);
        return absl::OkStatus();
      case Kind::kText:
        AppendString(value.bytes(), style_.ensure_ascii, &out_);
        return meter_.Fits(out_.size());
      case Kind::kSequence:
        if (value.sequence().form == Sequence::Form::kList ||
            value.sequence().form == Sequence::Form::kTuple) {
          return WriteItems(value.sequence());
        }
        break;
      case Kind::kDict:
        return WriteDict(value.dict());
      default:
        break;
    }
    return Fault({TypeName(value), " cannot be written as JSON"});
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::Status WriteItems(const Sequence& sequence) {
    if (sequence.items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    Begin('[');
    bool is_first = true;
    for (const Value& item : sequence.items) {
      if (!is_first) Separate();
      is_first = false;
      SL_RETURN_IF_ERROR(Write(item));
    }
    End(']');
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return absl::OkStatus();
    }
    SL_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(dict));
    Begin('{');
    bool is_first = true;
    for (const size_t at : order) {
      if (!is_first) Separate();
      is_first = false;
      const auto& [key, value] = dict.entries[at];
      SL_RETURN_IF_ERROR(WriteKey(key));
      out_ += style_.key_separator;
      SL_RETURN_IF_ERROR(Write(value));
    }
    End('}');
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    if (key.Is(Kind::kText)) return Write(key);
    if (!key.IsNumber() && !key.Is(Kind::kNone)) {
      return Fault({"JSON has no keys of type ", TypeName(key)});
    }
    out_ += '"';
    SL_RETURN_IF_ERROR(Write(key));
    out_ += '"';
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<size_t>> OrderOf(const Dict& dict) const {
    std::vector<size_t> order(dict.entries.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!style_.sort_keys) return order;
    absl::Status status;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const absl::StatusOr<bool> less = IsLess(dict.entries[a].first, dict.entries[b].first);
      if (!less.ok()) status = less.status();
      return less.ok() && *less;
    });
    SL_RETURN_IF_ERROR(status);
    return order;
  }

  void Begin(char bracket) {
    out_ += bracket;
    ++level_;
    BreakLine();
  }

  void Separate() {
    out_ += style_.item_separator;
    BreakLine();
  }

  void End(char bracket) {
    --level_;
    BreakLine();
    out_ += bracket;
  }

  void BreakLine() {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Meter& meter_;
  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

absl::StatusOr<Value> FromJson(Meter& meter, const nlohmann::ordered_json& json) {
  return FromJsonWithin(meter, json, kValueDepthMax);
}

absl::StatusOr<std::string> ToJson(Meter& meter, const Value& value, const JsonStyle& style) {
  Writer writer(meter, style);
  SL_RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

}  // namespace shardline::jinja
