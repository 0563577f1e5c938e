#pragma once

// Source to tree.

#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"

namespace shardline::jinja {

// Fails at the first thing that is no Jinja, or is Jinja that templates of models do not use
// (inheritance, includes, recursive loops), naming line and column.
absl::StatusOr<Tree> Parse(std::string_view source);

}  // namespace shardline::jinja
