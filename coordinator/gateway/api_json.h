#pragma once

// A client's JSON: read whole with limits, then field by field with errors that name the field.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/gateway/api_error.h"

namespace shardline {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t bytes_max = 32 << 20;
  size_t depth_max = 64;                // Arrays and objects within each other.
  size_t values_max = size_t{1} << 20;  // Scalars, arrays, objects and names together.
};

// The value that `body` spells. 400 that names line and column (or the field, for a number beyond
// all ranges) for text that is cut short, goes on behind its end, is no UTF-8, holds half a
// surrogate pair, names a field twice, or is past a limit; 413 past bytes_max.
ApiResult<Json> ParseJson(std::string_view body, const JsonLimits& limits = {});

// One line of JSON; bytes that are no UTF-8 become U+FFFD.
std::string JsonLine(const Json& json);

// The fields of one object, read by name and type. The first field of a wrong type or out of its
// range becomes the error of all readers that share it; from then on every getter answers as if
// the field were absent, so that the caller checks once, at the end. null counts as absent.
class JsonFields {
 public:
  // `object`, which outlives this, REQUIRES: is_object(). `path` is put before names: "tools[0].".
  JsonFields(const Json& object, std::string path, std::optional<ApiError>* error);

  const Json* Find(std::string_view name);  // Of any type.
  const Json* Array(std::string_view name);
  const Json* Object(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // A whole number written as 16 or 16.0; outside [low, high] is an error.
  std::optional<int64_t> Int(std::string_view name, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view name, double low, double high);
  // Any of 64 bits, signed or not, as the same 64 bits.
  std::optional<uint64_t> Bits64(std::string_view name);

  bool Has(std::string_view name);  // There and not null.
  void Ignore(std::string_view name);
  // What no getter and no Ignore has asked for, in the order of the object.
  std::vector<std::string> Unasked() const;

  // Makes this the error, unless there is one.
  void Fail(ApiError error);
  bool failed() const { return error_->has_value(); }
  std::string PathOf(std::string_view name) const;

 private:
  const Json* Typed(std::string_view name, bool (Json::*is_type)() const noexcept,
                    std::string_view type);

  const Json& object_;
  const std::string path_;
  std::optional<ApiError>* const error_;
  absl::flat_hash_set<std::string> asked_;
};

}  // namespace shardline
