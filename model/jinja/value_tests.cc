#include "model/jinja/value_tests.h"

#include <algorithm>

#include "base/status_macros.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {
namespace {

bool IsDefined(const Value& value) { return !value.Is(Kind::kUndefined); }
bool IsUndefined(const Value& value) { return value.Is(Kind::kUndefined); }
bool IsNone(const Value& value) { return value.Is(Kind::kNone); }
bool IsBoolean(const Value& value) { return value.Is(Kind::kBool); }
bool IsTrueItself(const Value& value) { return value.Is(Kind::kBool) && value.as_bool(); }
bool IsFalseItself(const Value& value) { return value.Is(Kind::kBool) && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.Is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.Is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.IsNumber(); }
bool IsString(const Value& value) { return value.Is(Kind::kText); }
bool IsMapping(const Value& value) { return value.Is(Kind::kDict); }
bool IsEscaped(const Value& value) { return value.Is(Kind::kText) && value.text().is_markup; }

// An undefined value has every method in Python, if only to fail when it is called.
bool IsCallable(const Value& value) {
  return value.Is(Kind::kCallable) || value.Is(Kind::kUndefined) || value.Is(Kind::kLoop);
}
bool IsIterable(const Value& value) {
  return value.Is(Kind::kSequence) || value.Is(Kind::kText) || value.Is(Kind::kDict) ||
         value.Is(Kind::kUndefined) || value.Is(Kind::kLoop);
}
bool IsSequence(const Value& value) {
  return value.Is(Kind::kText) || value.Is(Kind::kDict) || value.Is(Kind::kUndefined) ||
         (value.Is(Kind::kSequence) && value.sequence().is_indexable());
}

struct PlainTest {
  std::string_view name;
  bool (*holds)(const Value&);
};

constexpr PlainTest kPlainTests[] = {
    {"defined", IsDefined},   {"undefined", IsUndefined}, {"none", IsNone},
    {"boolean", IsBoolean},   {"true", IsTrueItself},     {"false", IsFalseItself},
    {"integer", IsInteger},   {"float", IsFloat},         {"number", IsNumber},
    {"string", IsString},     {"mapping", IsMapping},     {"escaped", IsEscaped},
    {"callable", IsCallable}, {"iterable", IsIterable},   {"sequence", IsSequence}};

enum class Relation {
  kEqual,
  kUnequal,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kSame,
  kDivisible
};

struct RelationTest {
  std::string_view name;
  Relation relation;
};

constexpr RelationTest kRelationTests[] = {{"eq", Relation::kEqual},
                                           {"equalto", Relation::kEqual},
                                           {"==", Relation::kEqual},
                                           {"ne", Relation::kUnequal},
                                           {"!=", Relation::kUnequal},
                                           {"lt", Relation::kLess},
                                           {"<", Relation::kLess},
                                           {"lessthan", Relation::kLess},
                                           {"le", Relation::kLessOrEqual},
                                           {"<=", Relation::kLessOrEqual},
                                           {"gt", Relation::kGreater},
                                           {">", Relation::kGreater},
                                           {"greaterthan", Relation::kGreater},
                                           {"ge", Relation::kGreaterOrEqual},
                                           {">=", Relation::kGreaterOrEqual},
                                           {"in", Relation::kIn},
                                           {"sameas", Relation::kSame},
                                           {"divisibleby", Relation::kDivisible}};

// Neither a < b nor b < a need hold where one is no number (NaN).
absl::StatusOr<bool> IsLessOrEqual(const Value& left, const Value& right) {
  SL_ASSIGN_OR_RETURN(const bool is_less, IsLess(left, right));
  return is_less || Equal(left, right);
}

absl::StatusOr<bool> Relate(Runtime& runtime, Relation relation, const Value& left,
                            const Value& right) {
  SL_RETURN_IF_ERROR(runtime.meter.Spend(std::min(left.extent().weight, right.extent().weight)));
  switch (relation) {
    case Relation::kEqual:
      return Equal(left, right);
    case Relation::kUnequal:
      return !Equal(left, right);
    case Relation::kLess:
      return IsLess(left, right);
    case Relation::kLessOrEqual:
      return IsLessOrEqual(left, right);
    case Relation::kGreater:
      return IsLess(right, left);
    case Relation::kGreaterOrEqual:
      return IsLessOrEqual(right, left);
    case Relation::kIn:
      return IsIn(runtime.meter, left, right);
    case Relation::kSame:
      return left.IsSameAs(right) || (left.Is(Kind::kText) && Equal(left, right));
    case Relation::kDivisible: {
      SL_ASSIGN_OR_RETURN(const Value rest,
                          Compute(runtime.meter, BinaryOperator::kModulo, left, right));
      return Equal(rest, Value::Int(0));
    }
  }
  return false;
}

absl::StatusOr<bool> HasParity(Runtime& runtime, const Value& input, int64_t parity) {
  SL_ASSIGN_OR_RETURN(const Value rest,
                      Compute(runtime.meter, BinaryOperator::kModulo, input, Value::Int(2)));
  return Equal(rest, Value::Int(parity));
}

}  // namespace

absl::StatusOr<bool> RunTest(Runtime& runtime, std::string_view name, const Value& input,
                             Arguments& arguments) {
  for (const PlainTest& test : kPlainTests) {
    if (test.name != name) continue;
    SL_RETURN_IF_ERROR(Bind(arguments, name, {}).status());
    return test.holds(input);
  }
  for (const RelationTest& test : kRelationTests) {
    if (test.name != name) continue;
    SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, name, {"other"}, 1));
    return Relate(runtime, test.relation, input, bound[0]);
  }
  if (name == "even" || name == "odd") {
    SL_RETURN_IF_ERROR(Bind(arguments, name, {}).status());
    return HasParity(runtime, input, name == "odd" ? 1 : 0);
  }
  return Fault({"the test '", name, "' is unknown or not supported"});
}

}  // namespace shardline::jinja
