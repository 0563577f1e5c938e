#pragma once

// Reads what a template passes to a built-in function.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/runtime.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

// A filter, or a method: `self` is what stands in front.
using Builtin = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                          Arguments& arguments);

// Arguments by parameter, in the order of the names given to Bind. Absent ones are empty.
class Bound {
 public:
  explicit Bound(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}

  bool Has(size_t index) const { return values_[index].has_value(); }
  // REQUIRES: Has(index).
  const Value& operator[](size_t index) const { return *values_[index]; }

  Value Or(size_t index, const Value& fallback) const;
  bool IsTrueAt(size_t index) const;  // False if absent.
  // Fail on another type. None counts as absent.
  absl::StatusOr<int64_t> IntegerOr(size_t index, int64_t fallback) const;
  absl::StatusOr<std::string> TextOr(size_t index, std::string_view fallback) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// Fails on arguments too many, unknown, given twice, or if one of the first `required` lacks.
absl::StatusOr<Bound> Bind(const Arguments& arguments, std::string_view function,
                           std::initializer_list<std::string_view> parameters, size_t required = 0);

}  // namespace shardline::jinja
