#pragma once

// Values from and to JSON, as Python's json module has it.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/jinja/meter.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // Of one level; nothing: all on one line.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Fails on invalid UTF-8, integers beyond 64 bits and nesting deeper than kValueDepthMax.
absl::StatusOr<Value> FromJson(Meter& meter, const nlohmann::ordered_json& json);

// Fails on what JSON cannot say: undefined values, functions, generators.
absl::StatusOr<std::string> ToJson(Meter& meter, const Value& value, const JsonStyle& style);

}  // namespace shardline::jinja
