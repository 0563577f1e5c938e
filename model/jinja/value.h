#pragma once

// What a template computes with: Python's values, as far as templates need them.
//
// Values are immutable and cheap to copy; only namespaces change, as in the sandbox that model
// libraries use. The exceptions are hidden in the parts: a generator remembers how far it was read,
// a loop knows its turn. A value belongs to one rendering, but for constants of a template, which
// any thread may read.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/jinja/meter.h"

namespace shardline::jinja {

class Value;
class Loop;
struct Runtime;

struct Text {
  std::string bytes;  // UTF-8.
  size_t length;      // Code points.
  // Marked `safe`: what is added to it gets its angle brackets escaped, as Markup does.
  bool is_markup;
  Charge charge;
};

// How much there is to walk in a value, parts of parts counted as often as they are reached.
struct Extent {
  int depth = 0;      // Of nesting; 0 for what has no parts.
  size_t weight = 1;  // About a thirtieth of the text it makes, in bytes.

  void Add(const Extent& part);  // Saturates.
};

struct Sequence {
  enum class Form { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

  Form form;
  std::vector<Value> items;
  Extent extent;
  size_t read = 0;  // Of a generator, which gives each item once.
  Charge charge;

  // Lists and tuples, ranges too: what has an order one can index.
  bool is_indexable() const {
    return form == Form::kList || form == Form::kTuple || form == Form::kRange;
  }
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;       // In order of insertion.
  absl::flat_hash_map<std::string, size_t> position;  // By HashKey; empty while few entries.
  Extent extent;
  Charge charge;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string shown;  // What printing it shows.
  std::function<absl::StatusOr<Value>(Runtime&, Arguments&)> call;
};

// The number is the index in the variant below.
enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,
  kDict,
  kNamespace,
  kCallable,
  kLoop
};

class Value {
 public:
  // Undefined: prints as nothing and fails with `why` when it is used for more.
  Value() : data_(Nothing{}) {}
  static Value Undefined(std::string why);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);

  // `meter` null: for constants of a template alone. REQUIRES: bytes is UTF-8.
  static Value OfText(Meter* meter, std::string bytes, bool is_markup = false);
  static Value OfItems(Meter* meter, Sequence::Form form, std::vector<Value> items);
  static Value List(Meter* meter, std::vector<Value> items) {
    return OfItems(meter, Sequence::Form::kList, std::move(items));
  }
  static Value Tuple(Meter* meter, std::vector<Value> items) {
    return OfItems(meter, Sequence::Form::kTuple, std::move(items));
  }
  // A later entry with an equal key replaces the value of an earlier one. Fails on keys that
  // cannot be hashed.
  static absl::StatusOr<Value> OfEntries(Meter* meter,
                                         std::vector<std::pair<Value, Value>> entries);
  static Value Of(std::shared_ptr<Namespace> space) { return Value(Data(std::move(space))); }
  static Value Of(std::shared_ptr<const Callable> callable) {
    return Value(Data(std::move(callable)));
  }
  static Value Of(std::shared_ptr<Loop> loop) { return Value(Data(std::move(loop))); }

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsNumber() const { return Is(Kind::kBool) || Is(Kind::kInt) || Is(Kind::kFloat); }
  bool IsInteger() const { return Is(Kind::kBool) || Is(Kind::kInt); }

  // REQUIRES of each: the kind it names.
  const std::string& why_undefined() const;
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const;   // Of a bool or an integer.
  double as_float() const;  // Of any number.
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& bytes() const { return text().bytes; }
  Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& space() const { return *std::get<std::shared_ptr<Namespace>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }

  Extent extent() const;

  // The same thing, not one that is equal: for what has an identity.
  bool IsSameAs(const Value& other) const { return data_ == other.data_; }

 private:
  struct Nothing {
    std::shared_ptr<const std::string> why;
    friend bool operator==(const Nothing&, const Nothing&) { return true; }
  };
  using Data = std::variant<Nothing, std::monostate, bool, int64_t, double,
                            std::shared_ptr<const Text>, std::shared_ptr<Sequence>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Callable>, std::shared_ptr<Loop>>;

  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

// Python's name of the type, for messages.
std::string_view TypeName(const Value& value);

// Equal for equal values; fails on what Python cannot hash.
absl::StatusOr<std::string> HashKey(const Value& value);

}  // namespace shardline::jinja
