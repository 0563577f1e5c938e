#include "model/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"

namespace shardline::jinja {
namespace {

constexpr size_t kEntriesSearched = 8;  // Dicts longer than this have an index.
constexpr size_t kRepBytes = 64;        // What a value costs beside its content.

// What a container of `parts` may be walked in; marks the meter beyond the limits.
Extent Around(Meter* meter, Extent parts) {
  ++parts.depth;
  if (meter != nullptr && (parts.depth > kValueDepthMax || parts.weight > kValueWeightMax)) {
    meter->MarkTooLarge();
  }
  return parts;
}

}  // namespace

Value Value::Undefined(std::string why) {
  return Value(Data(Nothing{std::make_shared<const std::string>(std::move(why))}));
}

Value Value::None() { return Value(Data(std::monostate{})); }
Value Value::Bool(bool value) { return Value(Data(value)); }
Value Value::Int(int64_t value) { return Value(Data(value)); }
Value Value::Float(double value) { return Value(Data(value)); }

Value Value::OfText(Meter* meter, std::string bytes, bool is_markup) {
  const size_t length = CodePointCount(bytes);
  const size_t held = bytes.size() + kRepBytes;
  return Value(Data(std::make_shared<const Text>(
      Text{std::move(bytes), length, is_markup, Charge(meter, held)})));
}

Value Value::OfItems(Meter* meter, Sequence::Form form, std::vector<Value> items) {
  Extent parts;
  for (const Value& item : items) parts.Add(item.extent());
  const size_t held = items.capacity() * sizeof(Value) + kRepBytes;
  return Value(Data(std::make_shared<Sequence>(
      Sequence{form, std::move(items), Around(meter, parts), 0, Charge(meter, held)})));
}

absl::StatusOr<Value> Value::OfEntries(Meter* meter, std::vector<std::pair<Value, Value>> entries) {
  Dict dict;
  Extent parts;
  size_t held = kRepBytes;
  for (auto& [key, value] : entries) {
    SL_ASSIGN_OR_RETURN(std::string hashed, HashKey(key));
    parts.Add(key.extent());
    parts.Add(value.extent());
    held += 2 * sizeof(Value);
    if (const Value* known = dict.Find(key)) {
      *const_cast<Value*>(known) = std::move(value);
      continue;
    }
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (entries.size() > kEntriesSearched) {
      held += hashed.size() + kRepBytes;
      dict.position.emplace(std::move(hashed), dict.entries.size() - 1);
    }
  }
  return Value(
      Data(std::make_shared<const Dict>(Dict{std::move(dict.entries), std::move(dict.position),
                                             Around(meter, parts), Charge(meter, held)})));
}

const std::string& Value::why_undefined() const {
  static const std::string* const unknown = new std::string("the value is undefined");
  const auto& why = std::get<Nothing>(data_).why;
  return why == nullptr ? *unknown : *why;
}

int64_t Value::as_int() const {
  return Is(Kind::kBool) ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_);
}

double Value::as_float() const {
  return Is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int());
}

Extent Value::extent() const {
  if (Is(Kind::kSequence)) return sequence().extent;
  if (Is(Kind::kDict)) return dict().extent;
  if (Is(Kind::kText)) return {.weight = 1 + bytes().size() / 32};
  return {};
}

void Extent::Add(const Extent& part) {
  constexpr size_t kMost = size_t{1} << 40;
  depth = std::max(depth, part.depth);
  weight = std::min(kMost, weight + part.weight);
}

const Value* Dict::Find(const Value& key) const {
  if (!position.empty()) {
    const absl::StatusOr<std::string> hashed = HashKey(key);
    if (!hashed.ok()) return nullptr;
    const auto found = position.find(*hashed);
    return found == position.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [other, value] : entries) {
    if (Equal(other, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (!position.empty()) {
    const auto found = position.find(Join({"s", key}));
    return found == position.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [other, value] : entries) {
    if (other.Is(Kind::kText) && other.bytes() == key) return &value;
  }
  return nullptr;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kSequence:
      switch (value.sequence().form) {
        case Sequence::Form::kList:
          return "list";
        case Sequence::Form::kTuple:
          return "tuple";
        case Sequence::Form::kRange:
          return "range";
        case Sequence::Form::kKeys:
          return "dict_keys";
        case Sequence::Form::kValues:
          return "dict_values";
        case Sequence::Form::kItems:
          return "dict_items";
        case Sequence::Form::kGenerator:
          return "generator";
      }
      break;
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

absl::StatusOr<std::string> HashKey(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::string("u");
    case Kind::kNone:
      return std::string("n");
    case Kind::kBool:
    case Kind::kInt:
      return "i" + std::to_string(value.as_int());
    case Kind::kFloat: {
      const double number = value.as_float();
      if (number == std::floor(number) && std::abs(number) < 9e18) {
        return "i" + std::to_string(static_cast<int64_t>(number));
      }
      return "f" + std::to_string(std::hash<double>{}(number));
    }
    case Kind::kText:
      return Join({"s", value.bytes()});
    case Kind::kSequence:
      if (value.sequence().form == Sequence::Form::kTuple) {
        std::string joined = "t";
        for (const Value& item : value.sequence().items) {
          SL_ASSIGN_OR_RETURN(const std::string part, HashKey(item));
          joined += std::to_string(part.size()) + ":" + part;
        }
        return joined;
      }
      break;
    default:
      break;
  }
  return Fault({"unhashable type: ", TypeName(value)});
}

}  // namespace shardline::jinja
