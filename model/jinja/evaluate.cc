// The expressions of the interpreter.

#include <algorithm>
#include <variant>

#include "base/status_macros.h"
#include "model/jinja/attributes.h"
#include "model/jinja/filters.h"
#include "model/jinja/format.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/operators.h"
#include "model/jinja/value_tests.h"

namespace shardline::jinja {

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression, const ScopePtr& scope) {
  absl::Status entered = runtime_.meter.Spend(1);
  if (entered.ok()) entered = runtime_.Enter();
  if (!entered.ok()) return Placed(expression.at, entered);
  absl::StatusOr<Value> value =
      std::visit([&](const auto& what) { return Evaluate(what, scope); }, expression.what);
  runtime_.Leave();
  if (!value.ok()) return Placed(expression.at, value.status());
  return value;
}

absl::StatusOr<Value> Interpreter::Evaluate(const Constant& constant, const ScopePtr&) {
  return constant.value;
}

absl::StatusOr<Value> Interpreter::Evaluate(const Name& name, const ScopePtr& scope) {
  if (const Value* found = scope->Find(name.id)) return *found;
  const std::string& spelled = tree_.names[static_cast<size_t>(name.id)];
  return Value::Undefined(Join({"'", spelled, "' is undefined"}));
}

absl::StatusOr<Value> Interpreter::Evaluate(const ListOf& list, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(list.items.size());
  for (const Expression& item : list.items) {
    SL_ASSIGN_OR_RETURN(Value value, Evaluate(item, scope));
    items.push_back(std::move(value));
  }
  return Value::OfItems(&runtime_.meter,
                        list.is_tuple ? Sequence::Form::kTuple : Sequence::Form::kList,
                        std::move(items));
}

absl::StatusOr<Value> Interpreter::Evaluate(const DictOf& dict, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    SL_ASSIGN_OR_RETURN(Value evaluated_key, Evaluate(key, scope));
    SL_ASSIGN_OR_RETURN(Value evaluated, Evaluate(value, scope));
    entries.emplace_back(std::move(evaluated_key), std::move(evaluated));
  }
  return Value::OfEntries(&runtime_.meter, std::move(entries));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Attribute& attribute, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value object, Evaluate(*attribute.object, scope));
  return AttributeOf(object, attribute.name);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Item& item, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value object, Evaluate(*item.object, scope));
  SL_ASSIGN_OR_RETURN(const Value key, Evaluate(*item.key, scope));
  return SubscriptOf(runtime_, object, key);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Slice& slice, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value object, Evaluate(*slice.object, scope));
  Value bounds[] = {Value::None(), Value::None(), Value::None()};
  const ExpressionPtr* const expressions[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < std::size(bounds); ++i) {
    if (*expressions[i] == nullptr) continue;
    SL_ASSIGN_OR_RETURN(bounds[i], Evaluate(**expressions[i], scope));
  }
  return SliceOf(runtime_.meter, object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Call& call, const ScopePtr& scope) {
  return CallWith(call, scope, nullptr);
}

absl::StatusOr<Value> Interpreter::CallWith(const Call& call, const ScopePtr& scope,
                                            const Value* extra) {
  Value object;
  Builtin method = nullptr;
  Value callee;
  // A method that is called at once needs no value of its own.
  const auto* attribute = std::get_if<Attribute>(&call.callee->what);
  if (attribute != nullptr) {
    SL_ASSIGN_OR_RETURN(object, Evaluate(*attribute->object, scope));
    method = FindMethod(object, attribute->name);
    if (method == nullptr) {
      SL_ASSIGN_OR_RETURN(callee, AttributeOf(object, attribute->name));
    }
  } else {
    SL_ASSIGN_OR_RETURN(callee, Evaluate(*call.callee, scope));
  }
  SL_ASSIGN_OR_RETURN(Arguments arguments, EvaluateAll(call.arguments, scope));
  if (extra != nullptr) arguments.named.emplace_back("caller", *extra);
  if (method != nullptr) return method(runtime_, object, arguments);
  if (callee.Is(Kind::kUndefined)) return Fault({callee.why_undefined()});
  if (!callee.Is(Kind::kCallable)) return Fault({TypeName(callee), " cannot be called"});
  return callee.callable().call(runtime_, arguments);
}

absl::StatusOr<Arguments> Interpreter::EvaluateAll(const ArgumentList& list,
                                                   const ScopePtr& scope) {
  Arguments arguments;
  arguments.positional.reserve(list.positional.size());
  for (const Expression& expression : list.positional) {
    SL_ASSIGN_OR_RETURN(Value value, Evaluate(expression, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : list.named) {
    SL_ASSIGN_OR_RETURN(Value value, Evaluate(expression, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::Evaluate(const Filter& filter, const ScopePtr& scope) {
  Value input;
  if (filter.input == nullptr) {
    input = filtered_.back();
  } else {
    SL_ASSIGN_OR_RETURN(input, Evaluate(*filter.input, scope));
  }
  SL_ASSIGN_OR_RETURN(Arguments arguments, EvaluateAll(filter.arguments, scope));
  return ApplyFilter(runtime_, filter.name, input, arguments);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Test& test, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value input, Evaluate(*test.input, scope));
  SL_ASSIGN_OR_RETURN(Arguments arguments, EvaluateAll(test.arguments, scope));
  SL_ASSIGN_OR_RETURN(const bool holds, RunTest(runtime_, test.name, input, arguments));
  return Value::Bool(holds);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Negation& negation, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value operand, Evaluate(*negation.operand, scope));
  return Negate(operand);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Plus& plus, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value operand, Evaluate(*plus.operand, scope));
  if (operand.IsInteger()) return Value::Int(operand.as_int());
  if (operand.Is(Kind::kFloat)) return operand;
  return Fault({"unsupported operand for unary +: ", TypeName(operand)});
}

absl::StatusOr<Value> Interpreter::Evaluate(const Not& negated, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value operand, Evaluate(*negated.operand, scope));
  return Value::Bool(!IsTrue(operand));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Both& both, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(Value left, Evaluate(*both.left, scope));
  if (!IsTrue(left)) return left;
  return Evaluate(*both.right, scope);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Either& either, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(Value left, Evaluate(*either.left, scope));
  if (IsTrue(left)) return left;
  return Evaluate(*either.right, scope);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Binary& binary, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value left, Evaluate(*binary.left, scope));
  SL_ASSIGN_OR_RETURN(const Value right, Evaluate(*binary.right, scope));
  return Compute(runtime_.meter, binary.op, left, right);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Concat& concat, const ScopePtr& scope) {
  std::string joined;
  for (const Expression& part : concat.parts) {
    SL_ASSIGN_OR_RETURN(const Value value, Evaluate(part, scope));
    SL_RETURN_IF_ERROR(runtime_.meter.Spend(value.extent().weight));
    SL_ASSIGN_OR_RETURN(const std::string text, TextOf(value));
    SL_RETURN_IF_ERROR(runtime_.meter.Fits(joined.size() + text.size()));
    joined += text;
  }
  return Value::OfText(&runtime_.meter, std::move(joined));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Compare& compare, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(Value left, Evaluate(*compare.first, scope));
  for (const auto& [comparison, operand] : compare.rest) {
    SL_ASSIGN_OR_RETURN(Value right, Evaluate(operand, scope));
    SL_ASSIGN_OR_RETURN(const bool holds, Holds(comparison, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<bool> Interpreter::Holds(Comparison comparison, const Value& left,
                                        const Value& right) {
  if (comparison == Comparison::kIn || comparison == Comparison::kNotIn) {
    SL_ASSIGN_OR_RETURN(const bool is_in, IsIn(runtime_.meter, left, right));
    return is_in == (comparison == Comparison::kIn);
  }
  SL_RETURN_IF_ERROR(runtime_.meter.Spend(std::min(left.extent().weight, right.extent().weight)));
  switch (comparison) {
    case Comparison::kEqual:
      return Equal(left, right);
    case Comparison::kUnequal:
      return !Equal(left, right);
    case Comparison::kLess:
      return IsLess(left, right);
    case Comparison::kGreater:
      return IsLess(right, left);
    default:
      break;
  }
  const bool is_at_most = comparison == Comparison::kLessOrEqual;
  SL_ASSIGN_OR_RETURN(const bool is_less, is_at_most ? IsLess(left, right) : IsLess(right, left));
  return is_less || Equal(left, right);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Choice& choice, const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(const Value condition, Evaluate(*choice.condition, scope));
  if (IsTrue(condition)) return Evaluate(*choice.then, scope);
  if (choice.otherwise == nullptr) {
    return Value::Undefined("the inline if has no else");
  }
  return Evaluate(*choice.otherwise, scope);
}

}  // namespace shardline::jinja
