#pragma once

// `value is test(...)`.

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/arguments.h"

namespace shardline::jinja {

// Fails on tests there are none of by that name.
absl::StatusOr<bool> RunTest(Runtime& runtime, std::string_view name, const Value& input,
                             Arguments& arguments);

}  // namespace shardline::jinja
