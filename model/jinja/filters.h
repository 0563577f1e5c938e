#pragma once

// `value | filter(...)`.

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/arguments.h"

namespace shardline::jinja {

// Fails on filters there are none of by that name.
absl::StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                                  Arguments& arguments);

// Null if the family has none by that name.
Builtin FindTextFilter(std::string_view name);
Builtin FindNumberFilter(std::string_view name);
Builtin FindListFilter(std::string_view name);

}  // namespace shardline::jinja
