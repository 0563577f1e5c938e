#pragma once

// The functions that every template may call: range, dict, namespace, raise_exception,
// strftime_now. (cycler, joiner and lipsum are known and fail when they are called.)

#include <optional>
#include <string_view>

#include "model/jinja/value.h"

namespace shardline::jinja {

std::optional<Value> FindGlobal(std::string_view name);

}  // namespace shardline::jinja
