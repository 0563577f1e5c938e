#pragma once

// What a JSON schema says in its own words, read with care: keywords come from strangers.
//
// Pure functions; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace shardline {

using SchemaJson = nlohmann::ordered_json;

// What looks things up name by name stays within these.
inline constexpr size_t kSchemaPropertiesMax = 2000;
inline constexpr size_t kSchemaValuesMax = 4000;

absl::Status InvalidSchema(std::string_view message);

// Values in `json`, itself included. REQUIRES: it nests within reason.
int64_t ValueCount(const SchemaJson& json);

// The keyword's value; null if it is absent, or `schema` no object.
const SchemaJson* FindKeyword(const SchemaJson& schema, std::string_view keyword);

// Keywords that restrict nothing.
bool IsAnnotation(std::string_view keyword);
bool HasAssertions(const SchemaJson& schema);  // Any other keyword.

// `type`, with `nullable` in it; nothing where neither is said. Fails on what is no type.
absl::StatusOr<std::optional<std::vector<std::string>>> TypesOf(const SchemaJson& schema);
// True if a value of the one type may be of the other: an integer is a number.
bool TypesOverlap(std::string_view a, std::string_view b);
bool IsOfType(const SchemaJson& value, std::string_view type);

// `enum` and `const`; nothing where neither is said.
absl::StatusOr<std::optional<std::vector<SchemaJson>>> ValuesOf(const SchemaJson& schema);

// A list of schemas, or of names; empty if absent. Fail on what is none.
absl::StatusOr<std::vector<SchemaJson>> SchemasOf(const SchemaJson& schema,
                                                  std::string_view keyword);
absl::StatusOr<std::vector<std::string>> RequiredOf(const SchemaJson& schema);
// `properties`; an empty object if absent.
absl::StatusOr<SchemaJson> PropertiesOf(const SchemaJson& schema);

}  // namespace shardline
