#pragma once

// What the operators of a template mean: Python's rules, integers of 64 bits (an overflow fails).

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/jinja/meter.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

absl::StatusOr<Value> Compute(Meter& meter, BinaryOperator op, const Value& left,
                              const Value& right);
absl::StatusOr<Value> Negate(const Value& value);

bool IsTrue(const Value& value);

// Never fails: unlike things are unequal. Costs the smaller extent of the two.
bool Equal(const Value& left, const Value& right);
// Fails on what has no order.
absl::StatusOr<bool> IsLess(const Value& left, const Value& right);
// `in`. Reads a generator up to the item.
absl::StatusOr<bool> IsIn(Meter& meter, const Value& item, const Value& container);

// The items a `for` runs over, as a sequence; reads a generator to its end.
absl::StatusOr<Value> ItemsOf(Meter& meter, const Value& value);
// len(); fails on what has none.
absl::StatusOr<int64_t> LengthOf(const Value& value);

// value[key]: undefined where there is nothing. value[start:stop:step], with None for what is left
// out: fails on what has no slices.
absl::StatusOr<Value> ItemOf(Meter& meter, const Value& value, const Value& key);
absl::StatusOr<Value> SliceOf(Meter& meter, const Value& value, const Value& start,
                              const Value& stop, const Value& step);

}  // namespace shardline::jinja
