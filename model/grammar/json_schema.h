#pragma once

// JSON schema to GBNF: every text of the grammar is JSON that the schema accepts.
//
// The other way round holds as far as a grammar can say it: properties come in the schema's order,
// and without `additionalProperties` an object with `properties` has no others; white space is
// none, one space, or one line break and up to 20 spaces; numbers have at most 18 digits, and no
// bound on length or count goes beyond kSchemaCountMax.
//
// Understood: type (and lists of them), nullable, properties, required, additionalProperties,
// items, prefixItems, minItems, maxItems, enum, const, anyOf, oneOf (where no text can match two),
// allOf (where it can be merged), $ref into the schema itself, minLength, maxLength, pattern
// (json_pattern.h), format (date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid),
// minimum, maximum and their exclusive forms (integral ones, unless the type is integer). Left out
// on purpose, since they restrict nothing: title, description, default, examples, $schema, $id,
// $comment, $defs, definitions, deprecated, readOnly, writeOnly, discriminator.
// Any other keyword is kInvalidRequest naming it and its path, as is what cannot be matched.
//
// Pure functions and a builder; any thread. Foreign schemas: depth and size have limits.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/grammar/grammar_builder.h"
#include "nlohmann/json.hpp"

namespace shardline {

inline constexpr int64_t kSchemaCountMax = 16384;
inline constexpr int kSchemaDepthMax = 64;

// A whole grammar for a text that is one value of `schema`.
absl::StatusOr<std::string> GrammarOfJsonSchema(const nlohmann::ordered_json& schema);

// For any JSON object.
std::string JsonObjectGrammar();

// The same as rules of a larger grammar: the name of a rule that matches a value of `schema`.
// `$ref` looks inside `schema`. `path` stands before the paths in errors.
absl::StatusOr<std::string> AddJsonSchema(const nlohmann::ordered_json& schema,
                                          std::string_view path, GrammarBuilder* grammar);
std::string AddJsonObject(GrammarBuilder* grammar);
std::string AddJsonValue(GrammarBuilder* grammar);

}  // namespace shardline
