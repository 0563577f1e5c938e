#pragma once

// JSON schema to GBNF: every text of the grammar is JSON that the schema accepts.
//
// The other way round holds as far as a grammar can say it. Properties come in the schema's order.
// Where `additionalProperties` is absent, an object with `properties` has no others. White space
// and numbers have bounds (json_words.h); no bound on a length or count goes beyond
// kSchemaCountMax. A schema without `type` is of the types that its keywords are about.
//
// Understood: type, nullable, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, enum, const, anyOf, oneOf (where no value can match two), allOf (where it can
// be merged: schema_merge.h), $ref into the schema itself, minLength, maxLength, pattern
// (json_pattern.h), format (json_format.h), minimum, maximum, exclusiveMinimum, exclusiveMaximum
// (integral, unless the type is integer). Left alone, since they restrict nothing: title,
// description, default, examples, $schema, $id, $comment, $defs, definitions, deprecated, readOnly,
// writeOnly, discriminator. Any other keyword is kInvalidRequest naming it and its path, and so is
// what no value can match.
//
// Foreign schemas: depth, work and size have limits. Any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/grammar/grammar_builder.h"
#include "nlohmann/json.hpp"

namespace shardline {

inline constexpr int64_t kSchemaCountMax = 4096;
inline constexpr int kSchemaDepthMax = 100;

// A whole grammar, of a text that is one value of `schema`. It compiles.
absl::StatusOr<std::string> GrammarOfJsonSchema(const nlohmann::ordered_json& schema);

// Of any JSON object.
std::string JsonObjectGrammar();

// A rule, in a larger grammar, for a value of `schema`; its name. `$ref` looks inside `schema`.
// Errors begin with `path`, what the client calls the schema. (For any object or value:
// JsonObject and JsonValue of json_words.h.)
absl::StatusOr<std::string> AddJsonSchema(const nlohmann::ordered_json& schema,
                                          std::string_view path, GrammarBuilder* grammar);

}  // namespace shardline
