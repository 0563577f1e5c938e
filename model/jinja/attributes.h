#pragma once

// `value.name`, and the methods of Python's types behind it.

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/arguments.h"

namespace shardline::jinja {

// The method of that name, null if the type has none. What changes its object (append, pop, ...)
// and what is not supported is a method that fails when it is called.
Builtin FindMethod(const Value& value, std::string_view name);
Builtin FindTextMethod(std::string_view name);  // Of str; null also for one that is not supported.

// Methods first, then keys; undefined where there is neither. Fails on an undefined value.
absl::StatusOr<Value> AttributeOf(const Value& value, const std::string& name);

// value[key]; for a name that is no key, the attribute.
absl::StatusOr<Value> SubscriptOf(Runtime& runtime, const Value& value, const Value& key);

}  // namespace shardline::jinja
