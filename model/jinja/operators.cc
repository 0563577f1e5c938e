#include "model/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/status_macros.h"
#include "model/jinja/format.h"
#include "model/jinja/text.h"

namespace shardline::jinja {
namespace {

std::string_view SymbolOf(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "";
}

absl::Status Overflow() { return Fault({"the number is too large"}); }

absl::StatusOr<Value> Checked(bool overflows, int64_t result) {
  if (overflows) return Overflow();
  return Value::Int(result);
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> ComputeIntegers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      return Checked(__builtin_add_overflow(a, b, &result), result);
    case BinaryOperator::kSubtract:
      return Checked(__builtin_sub_overflow(a, b, &result), result);
    case BinaryOperator::kMultiply:
      return Checked(__builtin_mul_overflow(a, b, &result), result);
    case BinaryOperator::kDivide:
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::kFloorDivide:
      if (b == -1) return Checked(__builtin_sub_overflow(int64_t{0}, a, &result), result);
      return Value::Int(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
    case BinaryOperator::kModulo:
      if (b == -1) return Value::Int(0);
      result = a % b;
      return Value::Int(result != 0 && (result < 0) != (b < 0) ? result + b : result);
    case BinaryOperator::kPower:
      if (b >= 0) return IntegerPower(a, b);
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return Overflow();
}

double FloatModulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  if ((rest < 0) != (b < 0)) rest += b;
  return rest;
}

double FloatFloorDivide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> ComputeFloats(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(a + b);
    case BinaryOperator::kSubtract:
      return Value::Float(a - b);
    case BinaryOperator::kMultiply:
      return Value::Float(a * b);
    case BinaryOperator::kDivide:
      return Value::Float(a / b);
    case BinaryOperator::kFloorDivide:
      return Value::Float(FloatFloorDivide(a, b));
    case BinaryOperator::kModulo:
      return Value::Float(FloatModulo(a, b));
    case BinaryOperator::kPower: {
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
        return Fault({"the result of ** is no real number"});
      }
      if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) return Overflow();
      return Value::Float(power);
    }
  }
  return Overflow();
}

absl::StatusOr<Value> ComputeNumbers(BinaryOperator op, const Value& left, const Value& right) {
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kFloorDivide ||
                       op == BinaryOperator::kModulo;
  const bool inverts = op == BinaryOperator::kPower && left.as_float() == 0 && right.as_float() < 0;
  if ((divides && right.as_float() == 0) || inverts) return Fault({"division by zero"});
  if (left.IsInteger() && right.IsInteger()) {
    return ComputeIntegers(op, left.as_int(), right.as_int());
  }
  return ComputeFloats(op, left.as_float(), right.as_float());
}

std::string Escaped(const Text& text) {
  return text.is_markup ? text.bytes : EscapeHtml(text.bytes);
}

Value Concatenate(Meter& meter, const Text& left, const Text& right) {
  if (!left.is_markup && !right.is_markup) {
    return Value::OfText(&meter, left.bytes + right.bytes);
  }
  return Value::OfText(&meter, Escaped(left) + Escaped(right), /*is_markup=*/true);
}

absl::StatusOr<Value> Repeat(Meter& meter, const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  const bool is_text = value.Is(Kind::kText);
  const size_t unit =
      is_text ? value.bytes().size() : value.sequence().items.size() * sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(unit, times, &bytes)) bytes = SIZE_MAX;
  SL_RETURN_IF_ERROR(meter.Fits(bytes));
  if (unit == 0) return value;
  if (is_text) {
    std::string repeated;
    repeated.reserve(bytes);
    for (size_t i = 0; i < times; ++i) repeated += value.bytes();
    return Value::OfText(&meter, std::move(repeated), value.text().is_markup);
  }
  std::vector<Value> items;
  items.reserve(times * value.sequence().items.size());
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return Value::OfItems(&meter, value.sequence().form, std::move(items));
}

bool IsListOrTuple(const Value& value) {
  return value.Is(Kind::kSequence) && (value.sequence().form == Sequence::Form::kList ||
                                       value.sequence().form == Sequence::Form::kTuple);
}

bool EqualItems(const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), Equal);
}

bool EqualSequences(const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  if (left.form != right.form || !left.is_indexable()) return false;
  return EqualItems(left.items, right.items);
}

bool EqualDicts(const Dict& left, const Dict& right) {
  if (&left == &right) return true;
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

bool EqualNumbers(const Value& left, const Value& right) {
  if (left.IsInteger() && right.IsInteger()) return left.as_int() == right.as_int();
  return left.as_float() == right.as_float();
}

// The characters of a text from `start`, every `step`th, up to `count` of them.
std::string Picked(const Text& text, int64_t start, int64_t step, int64_t count) {
  if (count <= 0) return "";
  if (step == 1) {
    const size_t from = OffsetOf(text.bytes, static_cast<size_t>(start));
    const std::string_view rest = std::string_view(text.bytes).substr(from);
    return std::string(rest.substr(0, OffsetOf(rest, static_cast<size_t>(count))));
  }
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.bytes.size(); NextCodePoint(text.bytes, &i)) offsets.push_back(i);
  offsets.push_back(text.bytes.size());
  std::string picked;
  for (int64_t at = start; count > 0; --count, at += step) {
    const size_t from = offsets[static_cast<size_t>(at)];
    picked.append(text.bytes, from, offsets[static_cast<size_t>(at) + 1] - from);
  }
  return picked;
}

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

absl::StatusOr<SliceRange> ResolveSlice(int64_t length, const Value& start, const Value& stop,
                                        const Value& step) {
  SliceRange range = {.start = 0, .step = step.Is(Kind::kNone) ? 1 : step.as_int(), .count = 0};
  if (range.step == 0) return Fault({"the step of a slice is zero"});
  // A longer step reaches no further item, and INT64_MIN has no opposite.
  range.step = std::clamp(range.step, -length - 1, length + 1);
  const bool backward = range.step < 0;
  const int64_t lowest = backward ? -1 : 0;
  const int64_t highest = backward ? length - 1 : length;
  const auto resolve = [&](const Value& bound, int64_t fallback) {
    if (bound.Is(Kind::kNone)) return fallback;
    int64_t at = bound.as_int();
    if (at < 0) at = at < -length ? lowest : at + length;
    return std::clamp(at, lowest, highest);
  };
  range.start = resolve(start, backward ? highest : lowest);
  const int64_t end = resolve(stop, backward ? lowest : highest);
  const int64_t distance = backward ? range.start - end : end - range.start;
  const int64_t stride = backward ? -range.step : range.step;
  if (distance > 0) range.count = (distance - 1) / stride + 1;
  return range;
}

absl::StatusOr<Value> ItemAt(Meter& meter, const Value& value, int64_t index) {
  const int64_t length = *LengthOf(value);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value::Undefined("the index is out of range");
  if (value.Is(Kind::kText)) {
    return Value::OfText(&meter, Picked(value.text(), index, 1, 1), value.text().is_markup);
  }
  return value.sequence().items[static_cast<size_t>(index)];
}

}  // namespace

absl::StatusOr<Value> Compute(Meter& meter, BinaryOperator op, const Value& left,
                              const Value& right) {
  if (op == BinaryOperator::kModulo && left.Is(Kind::kText)) {
    return FormatPercent(meter, left.text(), right);
  }
  for (const Value* operand : {&left, &right}) {
    if (operand->Is(Kind::kUndefined)) return Fault({operand->why_undefined()});
  }
  if (left.IsNumber() && right.IsNumber()) return ComputeNumbers(op, left, right);
  if (op == BinaryOperator::kAdd) {
    if (left.Is(Kind::kText) && right.Is(Kind::kText)) {
      return Concatenate(meter, left.text(), right.text());
    }
    if (IsListOrTuple(left) && IsListOrTuple(right) &&
        left.sequence().form == right.sequence().form) {
      std::vector<Value> items = left.sequence().items;
      const std::vector<Value>& more = right.sequence().items;
      items.insert(items.end(), more.begin(), more.end());
      return Value::OfItems(&meter, left.sequence().form, std::move(items));
    }
  }
  if (op == BinaryOperator::kMultiply) {
    if ((left.Is(Kind::kText) || IsListOrTuple(left)) && right.IsInteger()) {
      return Repeat(meter, left, right.as_int());
    }
    if ((right.Is(Kind::kText) || IsListOrTuple(right)) && left.IsInteger()) {
      return Repeat(meter, right, left.as_int());
    }
  }
  return Fault(
      {"unsupported operands for ", SymbolOf(op), ": ", TypeName(left), " and ", TypeName(right)});
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.IsInteger()) return ComputeIntegers(BinaryOperator::kSubtract, 0, value.as_int());
  if (value.Is(Kind::kFloat)) return Value::Float(-value.as_float());
  if (value.Is(Kind::kUndefined)) return Fault({value.why_undefined()});
  return Fault({"unsupported operand for unary -: ", TypeName(value)});
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kText:
      return !value.bytes().empty();
    case Kind::kSequence:
      return value.sequence().form == Sequence::Form::kGenerator || !value.sequence().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

bool Equal(const Value& left, const Value& right) {
  if (left.IsNumber() && right.IsNumber()) return EqualNumbers(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kText:
      return left.bytes() == right.bytes();
    case Kind::kSequence:
      return EqualSequences(left.sequence(), right.sequence());
    case Kind::kDict:
      return EqualDicts(left.dict(), right.dict());
    default:
      return left.IsSameAs(right);
  }
}

absl::StatusOr<bool> IsLess(const Value& left, const Value& right) {
  for (const Value* operand : {&left, &right}) {
    if (operand->Is(Kind::kUndefined)) return Fault({operand->why_undefined()});
  }
  if (left.IsInteger() && right.IsInteger()) return left.as_int() < right.as_int();
  if (left.IsNumber() && right.IsNumber()) return left.as_float() < right.as_float();
  if (left.Is(Kind::kText) && right.Is(Kind::kText)) return left.bytes() < right.bytes();
  if (IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().form == right.sequence().form) {
    const std::vector<Value>& a = left.sequence().items;
    const std::vector<Value>& b = right.sequence().items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!Equal(a[i], b[i])) return IsLess(a[i], b[i]);
    }
    return a.size() < b.size();
  }
  return Fault({"no order between ", TypeName(left), " and ", TypeName(right)});
}

absl::StatusOr<bool> IsIn(Meter& meter, const Value& item, const Value& container) {
  if (container.Is(Kind::kText)) {
    if (!item.Is(Kind::kText)) {
      return Fault({"'in' looks for a str in a str, not for ", TypeName(item)});
    }
    SL_RETURN_IF_ERROR(meter.Spend(SearchSteps(container.bytes(), item.bytes())));
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.Is(Kind::kDict)) {
    SL_RETURN_IF_ERROR(HashKey(item).status());
    return container.dict().Find(item) != nullptr;
  }
  if (container.Is(Kind::kUndefined)) return false;
  if (!container.Is(Kind::kSequence)) {
    return Fault({"'in' cannot look into ", TypeName(container)});
  }
  Sequence& sequence = container.sequence();
  size_t at = sequence.read;
  bool found = false;
  while (!found && at < sequence.items.size()) {
    const Value& candidate = sequence.items[at++];
    SL_RETURN_IF_ERROR(meter.Spend(1 + std::min(item.extent().weight, candidate.extent().weight)));
    found = Equal(candidate, item) || candidate.IsSameAs(item);
  }
  if (sequence.form == Sequence::Form::kGenerator) sequence.read = at;
  return found;
}

absl::StatusOr<Value> ItemsOf(Meter& meter, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kSequence: {
      Sequence& sequence = value.sequence();
      if (sequence.form != Sequence::Form::kGenerator) return value;
      items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.read),
                   sequence.items.end());
      sequence.read = sequence.items.size();
      break;
    }
    case Kind::kDict:
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Kind::kText: {
      const std::string& bytes = value.bytes();
      SL_RETURN_IF_ERROR(meter.Fits(value.text().length * 2 * sizeof(Value)));
      for (size_t i = 0; i < bytes.size();) {
        const size_t start = i;
        NextCodePoint(bytes, &i);
        items.push_back(Value::OfText(&meter, bytes.substr(start, i - start)));
        SL_RETURN_IF_ERROR(meter.Spend(1));
      }
      break;
    }
    default:
      return Fault({TypeName(value), " cannot be iterated over"});
  }
  return Value::List(&meter, std::move(items));
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<int64_t>(value.text().length);
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kSequence:
      if (value.sequence().form != Sequence::Form::kGenerator) {
        return static_cast<int64_t>(value.sequence().items.size());
      }
      break;
    default:
      break;
  }
  return Fault({TypeName(value), " has no length"});
}

absl::StatusOr<Value> ItemOf(Meter& meter, const Value& value, const Value& key) {
  if (value.Is(Kind::kUndefined)) return Fault({value.why_undefined()});
  if (value.Is(Kind::kDict)) {
    if (const Value* found = value.dict().Find(key)) return *found;
  } else if (key.IsInteger() && (value.Is(Kind::kText) ||
                                 (value.Is(Kind::kSequence) && value.sequence().is_indexable()))) {
    return ItemAt(meter, value, key.as_int());
  }
  const std::string shown = key.Is(Kind::kText) ? Quoted(key.bytes()) : "that item";
  return Value::Undefined(Join({TypeName(value), " has no ", shown}));
}

absl::StatusOr<Value> SliceOf(Meter& meter, const Value& value, const Value& start,
                              const Value& stop, const Value& step) {
  if (value.Is(Kind::kUndefined)) return Fault({value.why_undefined()});
  const bool is_text = value.Is(Kind::kText);
  if (!is_text && !(value.Is(Kind::kSequence) && value.sequence().is_indexable())) {
    return Fault({TypeName(value), " has no slices"});
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->Is(Kind::kNone) && !bound->IsInteger()) {
      return Fault({"a slice takes integers, not ", TypeName(*bound)});
    }
  }
  SL_ASSIGN_OR_RETURN(const int64_t length, LengthOf(value));
  SL_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(length, start, stop, step));
  if (is_text) {
    return Value::OfText(&meter, Picked(value.text(), range.start, range.step, range.count),
                         value.text().is_markup);
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.sequence().items[static_cast<size_t>(range.start + i * range.step)]);
  }
  return Value::OfItems(&meter, value.sequence().form, std::move(items));
}

}  // namespace shardline::jinja
