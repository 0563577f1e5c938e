// Filters that read or make lists.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status_macros.h"
#include "model/jinja/attributes.h"
#include "model/jinja/filters.h"
#include "model/jinja/format.h"
#include "model/jinja/operators.h"
#include "model/jinja/text.h"
#include "model/jinja/unicode.h"
#include "model/jinja/value_tests.h"

namespace shardline::jinja {
namespace {

Value Generator(Runtime& runtime, std::vector<Value> items) {
  return Value::OfItems(&runtime.meter, Sequence::Form::kGenerator, std::move(items));
}

// A way from an item to a part of it: "function.name", "0.id". Empty: the item itself.
class Path {
 public:
  static absl::StatusOr<Path> Of(const Value& attribute) {
    Path path;
    if (attribute.Is(Kind::kNone) || attribute.Is(Kind::kUndefined)) return path;
    if (!attribute.Is(Kind::kText)) {
      path.steps_.push_back(attribute);
      return path;
    }
    for (const std::string_view step : SplitAt(attribute.bytes(), ".", -1, false)) {
      const bool is_index = !step.empty() && step.size() < kDigitsMax &&
                            step.find_first_not_of("0123456789") == step.npos;
      path.steps_.push_back(is_index ? Value::Int(std::stoll(std::string(step)))
                                     : Value::OfText(nullptr, std::string(step)));
    }
    return path;
  }

  // An undefined step is replaced by `fallback`, if there is one.
  absl::StatusOr<Value> From(Runtime& runtime, Value item,
                             const std::optional<Value>& fallback = std::nullopt) const {
    for (const Value& step : steps_) {
      SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
      SL_ASSIGN_OR_RETURN(item, SubscriptOf(runtime, item, step));
      if (fallback.has_value() && item.Is(Kind::kUndefined)) item = *fallback;
    }
    return item;
  }

 private:
  static constexpr size_t kDigitsMax = 10;
  std::vector<Value> steps_;
};

Value WithoutCase(Runtime& runtime, const Value& value) {
  if (!value.Is(Kind::kText)) return value;
  return Value::OfText(&runtime.meter, Lower(value.bytes()));
}

absl::StatusOr<Value> List(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "list", {}).status());
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  return Value::List(&runtime.meter, items.sequence().items);
}

absl::StatusOr<Value> First(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "first", {}).status());
  if (input.Is(Kind::kSequence)) {
    Sequence& sequence = input.sequence();
    if (sequence.read == sequence.items.size()) return Value::Undefined("there is no first item");
    const Value& item = sequence.items[sequence.read];
    if (sequence.form == Sequence::Form::kGenerator) ++sequence.read;
    return item;
  }
  if (input.Is(Kind::kText) && !input.bytes().empty()) {
    return ItemOf(runtime.meter, input, Value::Int(0));
  }
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  if (items.sequence().items.empty()) return Value::Undefined("there is no first item");
  return items.sequence().items.front();
}

absl::StatusOr<Value> Last(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "last", {}).status());
  if (input.Is(Kind::kSequence) && input.sequence().form == Sequence::Form::kGenerator) {
    return Fault({"a generator has no last item: make it a list first"});
  }
  if (input.Is(Kind::kText) && !input.bytes().empty()) {
    return ItemOf(runtime.meter, input, Value::Int(-1));
  }
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  if (items.sequence().items.empty()) return Value::Undefined("there is no last item");
  return items.sequence().items.back();
}

absl::StatusOr<Value> JoinItems(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "join", {"d", "attribute"}));
  std::string separator;
  if (bound.Has(0)) {
    SL_ASSIGN_OR_RETURN(separator, TextOf(bound[0]));
  }
  SL_ASSIGN_OR_RETURN(const Path path, Path::Of(bound.Or(1, Value::None())));
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::string joined;
  bool is_first = true;
  for (const Value& item : items.sequence().items) {
    SL_ASSIGN_OR_RETURN(const Value part, path.From(runtime, item));
    SL_RETURN_IF_ERROR(runtime.meter.Spend(part.extent().weight));
    SL_ASSIGN_OR_RETURN(const std::string text, TextOf(part));
    SL_RETURN_IF_ERROR(runtime.meter.Fits(joined.size() + separator.size() + text.size()));
    if (!is_first) joined += separator;
    is_first = false;
    joined += text;
  }
  return Value::OfText(&runtime.meter, std::move(joined));
}

absl::StatusOr<Value> Items(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "items", {}).status());
  if (input.Is(Kind::kUndefined)) return Generator(runtime, {});
  if (!input.Is(Kind::kDict)) return Fault({"items takes a mapping, not ", TypeName(input)});
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict().entries) {
    pairs.push_back(Value::Tuple(&runtime.meter, {key, value}));
  }
  return Generator(runtime, std::move(pairs));
}

absl::StatusOr<Value> Map(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!IsTrue(input)) return Generator(runtime, {});
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "map", {"attribute", "default"}, 1));
    SL_ASSIGN_OR_RETURN(const Path path, Path::Of(bound[0]));
    std::optional<Value> fallback;
    if (bound.Has(1) && !bound[1].Is(Kind::kNone)) fallback = bound[1];
    for (const Value& item : items.sequence().items) {
      SL_ASSIGN_OR_RETURN(Value part, path.From(runtime, item, fallback));
      mapped.push_back(std::move(part));
    }
    return Generator(runtime, std::move(mapped));
  }
  if (!arguments.positional[0].Is(Kind::kText)) return Fault({"map takes the name of a filter"});
  const std::string name = arguments.positional[0].bytes();
  for (const Value& item : items.sequence().items) {
    SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
    Arguments passed = {
        .positional = {arguments.positional.begin() + 1, arguments.positional.end()},
        .named = arguments.named};
    SL_ASSIGN_OR_RETURN(Value value, ApplyFilter(runtime, name, item, passed));
    mapped.push_back(std::move(value));
  }
  return Generator(runtime, std::move(mapped));
}

// select and reject, and with `by_attribute` selectattr and rejectattr: items that pass a test
// (or are true, without one), or that do not.
absl::StatusOr<Value> Sift(Runtime& runtime, const Value& input, Arguments& arguments,
                           bool by_attribute, bool keeps) {
  if (!IsTrue(input)) return Generator(runtime, {});
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  size_t used = 0;
  Path path;
  if (by_attribute) {
    if (arguments.positional.empty()) return Fault({"selectattr lacks the attribute"});
    SL_ASSIGN_OR_RETURN(path, Path::Of(arguments.positional[used++]));
  }
  std::optional<std::string> test;
  if (used < arguments.positional.size()) {
    const Value& name = arguments.positional[used++];
    if (!name.Is(Kind::kText)) return Fault({"select takes the name of a test"});
    test = name.bytes();
  }
  std::vector<Value> kept;
  for (const Value& item : items.sequence().items) {
    SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
    SL_ASSIGN_OR_RETURN(const Value part, path.From(runtime, item));
    bool passes = IsTrue(part);
    if (test.has_value()) {
      Arguments passed = {
          .positional = {arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                         arguments.positional.end()},
          .named = arguments.named};
      SL_ASSIGN_OR_RETURN(passes, RunTest(runtime, *test, part, passed));
    }
    if (passes == keeps) kept.push_back(item);
  }
  return Generator(runtime, std::move(kept));
}

absl::StatusOr<Value> Select(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Sift(runtime, input, arguments, /*by_attribute=*/false, /*keeps=*/true);
}
absl::StatusOr<Value> Reject(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Sift(runtime, input, arguments, /*by_attribute=*/false, /*keeps=*/false);
}
absl::StatusOr<Value> SelectAttribute(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Sift(runtime, input, arguments, /*by_attribute=*/true, /*keeps=*/true);
}
absl::StatusOr<Value> RejectAttribute(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Sift(runtime, input, arguments, /*by_attribute=*/true, /*keeps=*/false);
}

struct Keyed {
  Value key;
  Value item;
};

// Each item with its key: a list of the parts that `attribute` names, commas between them.
absl::StatusOr<std::vector<Keyed>> KeyedItems(Runtime& runtime, const Value& input,
                                              const Value& attribute, bool has_case) {
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::vector<Path> paths;
  if (attribute.Is(Kind::kText)) {
    for (const std::string_view name : SplitAt(attribute.bytes(), ",", -1, false)) {
      SL_ASSIGN_OR_RETURN(Path path, Path::Of(Value::OfText(nullptr, std::string(name))));
      paths.push_back(std::move(path));
    }
  } else {
    SL_ASSIGN_OR_RETURN(Path path, Path::Of(attribute));
    paths.push_back(std::move(path));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items.sequence().items) {
    std::vector<Value> parts;
    for (const Path& path : paths) {
      SL_ASSIGN_OR_RETURN(Value part, path.From(runtime, item));
      parts.push_back(has_case ? std::move(part) : WithoutCase(runtime, part));
    }
    SL_RETURN_IF_ERROR(runtime.meter.Spend(parts.size()));
    keyed.push_back({Value::List(&runtime.meter, std::move(parts)), item});
  }
  return keyed;
}

// A stable merge sort that ends at the first comparison that fails.
absl::Status SortKeyed(Runtime& runtime, std::vector<Keyed>* keyed, bool descending) {
  absl::Status status;
  std::stable_sort(keyed->begin(), keyed->end(), [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    status = runtime.meter.Spend(1 + std::min(a.key.extent().weight, b.key.extent().weight));
    if (!status.ok()) return false;
    const absl::StatusOr<bool> is_less = descending ? IsLess(b.key, a.key) : IsLess(a.key, b.key);
    if (!is_less.ok()) status = is_less.status();
    return is_less.ok() && *is_less;
  });
  return status;
}

absl::StatusOr<Value> Sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound,
                      Bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"}));
  SL_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                      KeyedItems(runtime, input, bound.Or(2, Value::None()), bound.IsTrueAt(1)));
  SL_RETURN_IF_ERROR(SortKeyed(runtime, &keyed, bound.IsTrueAt(0)));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return Value::List(&runtime.meter, std::move(sorted));
}

absl::StatusOr<Value> SortDict(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound,
                      Bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"}));
  SL_ASSIGN_OR_RETURN(const std::string by, bound.TextOr(1, "key"));
  if (by != "key" && by != "value") return Fault({"dictsort sorts by \"key\" or \"value\""});
  if (!input.Is(Kind::kDict)) return Fault({"dictsort takes a mapping, not ", TypeName(input)});
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict().entries) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.push_back({bound.IsTrueAt(0) ? sorted_by : WithoutCase(runtime, sorted_by),
                     Value::Tuple(&runtime.meter, {key, value})});
  }
  SL_RETURN_IF_ERROR(SortKeyed(runtime, &keyed, bound.IsTrueAt(2)));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return Value::List(&runtime.meter, std::move(sorted));
}

absl::StatusOr<Value> Unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound,
                      Bind(arguments, "unique", {"case_sensitive", "attribute"}));
  SL_ASSIGN_OR_RETURN(const Path path, Path::Of(bound.Or(1, Value::None())));
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  absl::flat_hash_set<std::string> seen;
  std::vector<Value> kept;
  for (const Value& item : items.sequence().items) {
    SL_ASSIGN_OR_RETURN(Value key, path.From(runtime, item));
    if (!bound.IsTrueAt(0)) key = WithoutCase(runtime, key);
    SL_RETURN_IF_ERROR(runtime.meter.Spend(key.extent().weight));
    SL_ASSIGN_OR_RETURN(std::string hashed, HashKey(key));
    if (seen.insert(std::move(hashed)).second) kept.push_back(item);
  }
  return Generator(runtime, std::move(kept));
}

absl::StatusOr<Value> Extreme(Runtime& runtime, const Value& input, Arguments& arguments,
                              bool is_max) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "min", {"case_sensitive", "attribute"}));
  SL_ASSIGN_OR_RETURN(const Path path, Path::Of(bound.Or(1, Value::None())));
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::optional<Keyed> best;
  for (const Value& item : items.sequence().items) {
    SL_ASSIGN_OR_RETURN(Value key, path.From(runtime, item));
    if (!bound.IsTrueAt(0)) key = WithoutCase(runtime, key);
    SL_RETURN_IF_ERROR(runtime.meter.Spend(key.extent().weight));
    bool is_better = true;
    if (best.has_value()) {
      SL_ASSIGN_OR_RETURN(is_better, is_max ? IsLess(best->key, key) : IsLess(key, best->key));
    }
    if (is_better) best = Keyed{std::move(key), item};
  }
  if (!best.has_value()) return Value::Undefined("there are no items to compare");
  return best->item;
}

absl::StatusOr<Value> Min(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Extreme(runtime, input, arguments, /*is_max=*/false);
}
absl::StatusOr<Value> Max(Runtime& runtime, const Value& input, Arguments& arguments) {
  return Extreme(runtime, input, arguments, /*is_max=*/true);
}

absl::StatusOr<Value> Sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "sum", {"attribute", "start"}));
  SL_ASSIGN_OR_RETURN(const Path path, Path::Of(bound.Or(0, Value::None())));
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  Value total = bound.Or(1, Value::Int(0));
  if (total.Is(Kind::kText)) return Fault({"sum adds no str: use join"});
  for (const Value& item : items.sequence().items) {
    SL_ASSIGN_OR_RETURN(const Value part, path.From(runtime, item));
    SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
    SL_ASSIGN_OR_RETURN(total, Compute(runtime.meter, BinaryOperator::kAdd, total, part));
  }
  return total;
}

absl::StatusOr<Value> Reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_RETURN_IF_ERROR(Bind(arguments, "reverse", {}).status());
  if (input.Is(Kind::kText)) {
    return SliceOf(runtime.meter, input, Value::None(), Value::None(), Value::Int(-1));
  }
  // Python gives a list where nothing else can be read backwards.
  const bool was_generator =
      input.Is(Kind::kSequence) && input.sequence().form == Sequence::Form::kGenerator;
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::vector<Value> reversed(items.sequence().items.rbegin(), items.sequence().items.rend());
  if (was_generator) return Value::List(&runtime.meter, std::move(reversed));
  return Generator(runtime, std::move(reversed));
}

absl::StatusOr<Value> Batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "batch", {"linecount", "fill_with"}, 1));
  SL_ASSIGN_OR_RETURN(const int64_t size, bound.IntegerOr(0, 1));
  if (size < 1) return Fault({"batch: the size must be positive"});
  SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime.meter, input));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : items.sequence().items) {
    batch.push_back(item);
    if (batch.size() < static_cast<size_t>(size)) continue;
    batches.push_back(Value::List(&runtime.meter, std::exchange(batch, {})));
    SL_RETURN_IF_ERROR(runtime.meter.Spend(1));
  }
  if (!batch.empty()) {
    if (bound.Has(1) && !bound[1].Is(Kind::kNone)) {
      SL_RETURN_IF_ERROR(runtime.meter.Fits(static_cast<size_t>(size)));
      SL_RETURN_IF_ERROR(runtime.meter.Fits(static_cast<size_t>(size) * sizeof(Value)));
      batch.resize(static_cast<size_t>(size), bound[1]);
    }
    batches.push_back(Value::List(&runtime.meter, std::move(batch)));
  }
  return Generator(runtime, std::move(batches));
}

struct Entry {
  std::string_view name;
  Builtin function;
};

constexpr Entry kFilters[] = {{"list", List},
                              {"first", First},
                              {"last", Last},
                              {"join", JoinItems},
                              {"items", Items},
                              {"map", Map},
                              {"select", Select},
                              {"reject", Reject},
                              {"selectattr", SelectAttribute},
                              {"rejectattr", RejectAttribute},
                              {"sort", Sort},
                              {"dictsort", SortDict},
                              {"unique", Unique},
                              {"min", Min},
                              {"max", Max},
                              {"sum", Sum},
                              {"reverse", Reverse},
                              {"batch", Batch}};

}  // namespace

Builtin FindListFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace shardline::jinja
