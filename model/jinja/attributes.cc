#include "model/jinja/attributes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/jinja/loop.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {
namespace {

struct Entry {
  std::string_view name;
  Builtin function;
};

absl::StatusOr<Value> Refused(Runtime&, const Value& self, Arguments&) {
  return Fault({"values of type ", TypeName(self), " cannot be changed in a template"});
}

absl::StatusOr<Value> Unsupported(Runtime&, const Value& self, Arguments&) {
  return Fault({"this method of ", TypeName(self), " is not supported"});
}

absl::StatusOr<Value> Get(Runtime&, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "get", {"key", "default"}, 1));
  SL_RETURN_IF_ERROR(HashKey(bound[0]).status());
  const Value* found = self.dict().Find(bound[0]);
  return found == nullptr ? bound.Or(1, Value::None()) : *found;
}

absl::StatusOr<Value> Items(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "items", {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    items.push_back(Value::Tuple(&runtime.meter, {key, value}));
  }
  return Value::OfItems(&runtime.meter, Sequence::Form::kItems, std::move(items));
}

absl::StatusOr<Value> Keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "keys", {}).status());
  std::vector<Value> keys;
  for (const auto& entry : self.dict().entries) keys.push_back(entry.first);
  return Value::OfItems(&runtime.meter, Sequence::Form::kKeys, std::move(keys));
}

absl::StatusOr<Value> Values(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "values", {}).status());
  std::vector<Value> values;
  for (const auto& entry : self.dict().entries) values.push_back(entry.second);
  return Value::OfItems(&runtime.meter, Sequence::Form::kValues, std::move(values));
}

absl::StatusOr<Value> Copy(Runtime&, const Value& self, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "copy", {}).status());
  return self;
}

absl::StatusOr<Value> CountInList(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "count", {"value"}, 1));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.extent().weight));
  const std::vector<Value>& items = self.sequence().items;
  return Value::Int(std::count_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(item, bound[0]); }));
}

absl::StatusOr<Value> IndexInList(Runtime& runtime, const Value& self, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "index", {"value"}, 1));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(self.extent().weight));
  const std::vector<Value>& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], bound[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return Fault({"the value is not in the list"});
}

constexpr Entry kDictMethods[] = {
    {"get", Get},        {"items", Items},         {"keys", Keys},
    {"values", Values},  {"copy", Copy},           {"clear", Refused},
    {"pop", Refused},    {"popitem", Refused},     {"setdefault", Refused},
    {"update", Refused}, {"fromkeys", Unsupported}};
constexpr Entry kListMethods[] = {
    {"count", CountInList}, {"index", IndexInList}, {"copy", Copy},      {"append", Refused},
    {"clear", Refused},     {"extend", Refused},    {"insert", Refused}, {"pop", Refused},
    {"remove", Refused},    {"reverse", Refused},   {"sort", Refused}};
constexpr Entry kTupleMethods[] = {{"count", CountInList}, {"index", IndexInList}};

// What str has in Python and not here.
constexpr std::string_view kTextOthers[] = {
    "casefold",    "encode",  "expandtabs", "format_map", "isascii",  "isidentifier", "islower",
    "isprintable", "istitle", "isupper",    "maketrans",  "swapcase", "translate"};

template <size_t N>
Builtin FindIn(const Entry (&entries)[N], std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

const Value* FindInNamespace(const Value& value, std::string_view name) {
  for (const auto& [known, attribute] : value.space().attributes) {
    if (known == name) return &attribute;
  }
  return nullptr;
}

Value Method(const Value& self, Builtin function) {
  auto callable = std::make_shared<Callable>();
  callable->call = [self, function](Runtime& runtime, Arguments& arguments) {
    return function(runtime, self, arguments);
  };
  return Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
}

Value Missing(const Value& value, const std::string& name) {
  return Value::Undefined(Join({"'", TypeName(value), "' has no attribute '", name, "'"}));
}

}  // namespace

Builtin FindMethod(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kText:
      if (const Builtin found = FindTextMethod(name)) return found;
      if (std::find(std::begin(kTextOthers), std::end(kTextOthers), name) !=
          std::end(kTextOthers)) {
        return Unsupported;
      }
      return nullptr;
    case Kind::kDict:
      return FindIn(kDictMethods, name);
    case Kind::kSequence:
      if (value.sequence().form == Sequence::Form::kList) return FindIn(kListMethods, name);
      if (value.sequence().form == Sequence::Form::kTuple) return FindIn(kTupleMethods, name);
      return nullptr;
    default:
      return nullptr;
  }
}

absl::StatusOr<Value> AttributeOf(const Value& value, const std::string& name) {
  if (value.Is(Kind::kUndefined)) return Fault({value.why_undefined()});
  if (value.Is(Kind::kNamespace)) {
    const Value* found = FindInNamespace(value, name);
    return found == nullptr ? Missing(value, name) : *found;
  }
  if (value.Is(Kind::kLoop)) return value.loop().AttributeOf(name);
  if (const Builtin method = FindMethod(value, name)) return Method(value, method);
  if (value.Is(Kind::kDict)) {
    if (const Value* found = value.dict().Find(std::string_view(name))) return *found;
  }
  return Missing(value, name);
}

absl::StatusOr<Value> SubscriptOf(Runtime& runtime, const Value& value, const Value& key) {
  SL_ASSIGN_OR_RETURN(Value item, ItemOf(runtime.meter, value, key));
  if (!item.Is(Kind::kUndefined) || !key.Is(Kind::kText)) return item;
  // A key whose value is undefined is there all the same.
  if (value.Is(Kind::kDict) && value.dict().Find(key) != nullptr) return item;
  return AttributeOf(value, key.bytes());
}

}  // namespace shardline::jinja
