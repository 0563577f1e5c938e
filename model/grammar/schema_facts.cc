#include "model/grammar/schema_facts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {

absl::Status InvalidSchema(std::string_view message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

int64_t ValueCount(const SchemaJson& json) {
  int64_t out = 1;
  for (const SchemaJson& child : json) out += child.is_structured() ? ValueCount(child) : 1;
  return out;
}

const SchemaJson* FindKeyword(const SchemaJson& schema, std::string_view keyword) {
  if (!schema.is_object()) return nullptr;
  const auto it = schema.find(std::string(keyword));
  return it == schema.end() ? nullptr : &*it;
}

bool IsAnnotation(std::string_view keyword) {
  constexpr std::string_view kAnnotations[] = {
      "title",       "description", "default",  "examples",  "example",
      "$schema",     "$id",         "$comment", "$defs",     "$anchor",
      "definitions", "deprecated",  "readOnly", "writeOnly", "discriminator"};
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
         std::end(kAnnotations);
}

bool HasAssertions(const SchemaJson& schema) {
  for (const auto& item : schema.items()) {
    if (!IsAnnotation(item.key())) return true;
  }
  return false;
}

absl::StatusOr<std::optional<std::vector<std::string>>> TypesOf(const SchemaJson& schema) {
  constexpr std::string_view kTypes[] = {"null",   "boolean", "object", "array",
                                         "number", "integer", "string"};
  std::vector<std::string> out;
  const auto add = [&](const SchemaJson& type) {
    if (!type.is_string()) return InvalidSchema("keyword 'type' must be a name or a list of them");
    const std::string& name = type.get_ref<const std::string&>();
    if (std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes)) {
      return InvalidSchema(absl::StrCat("keyword 'type': there is no type '", name, "'"));
    }
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    return absl::OkStatus();
  };
  const SchemaJson* const type = FindKeyword(schema, "type");
  if (type == nullptr) return std::nullopt;
  if (type->is_array()) {
    for (const SchemaJson& one : *type) SL_RETURN_IF_ERROR(add(one));
    if (out.empty()) return InvalidSchema("keyword 'type' is an empty list");
  } else {
    SL_RETURN_IF_ERROR(add(*type));
  }
  const SchemaJson* const nullable = FindKeyword(schema, "nullable");
  if (nullable != nullptr && nullable->is_boolean() && nullable->get<bool>()) {
    SL_RETURN_IF_ERROR(add("null"));
  }
  return out;
}

bool TypesOverlap(std::string_view a, std::string_view b) {
  const auto is_numeric = [](std::string_view type) {
    return type == "integer" || type == "number";
  };
  return a == b || (is_numeric(a) && is_numeric(b));
}

bool IsOfType(const SchemaJson& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
}

absl::StatusOr<std::optional<std::vector<SchemaJson>>> ValuesOf(const SchemaJson& schema) {
  const SchemaJson* const constant = FindKeyword(schema, "const");
  const SchemaJson* const list = FindKeyword(schema, "enum");
  if (constant == nullptr && list == nullptr) return std::nullopt;
  std::vector<SchemaJson> out;
  if (list != nullptr) {
    if (!list->is_array()) return InvalidSchema("keyword 'enum' must be a list");
    if (list->size() > kSchemaValuesMax) {
      return InvalidSchema(
          absl::StrCat("keyword 'enum' has more than ", kSchemaValuesMax, " values"));
    }
    out.assign(list->begin(), list->end());
  }
  if (constant == nullptr) return out;
  const bool is_listed =
      list == nullptr || std::find(out.begin(), out.end(), *constant) != out.end();
  out.clear();
  if (is_listed) out.push_back(*constant);
  return out;
}

absl::StatusOr<std::vector<SchemaJson>> SchemasOf(const SchemaJson& schema,
                                                  std::string_view keyword) {
  const SchemaJson* const list = FindKeyword(schema, keyword);
  if (list == nullptr) return std::vector<SchemaJson>();
  if (!list->is_array() || list->empty()) {
    return InvalidSchema(
        absl::StrCat("keyword '", std::string(keyword), "' must be a list of schemas"));
  }
  return std::vector<SchemaJson>(list->begin(), list->end());
}

absl::StatusOr<std::vector<std::string>> RequiredOf(const SchemaJson& schema) {
  std::vector<std::string> out;
  const SchemaJson* const list = FindKeyword(schema, "required");
  if (list == nullptr) return out;
  if (!list->is_array()) return InvalidSchema("keyword 'required' must be a list of names");
  if (list->size() > kSchemaPropertiesMax) {
    return InvalidSchema(
        absl::StrCat("keyword 'required' has more than ", kSchemaPropertiesMax, " names"));
  }
  for (const SchemaJson& name : *list) {
    if (!name.is_string()) return InvalidSchema("keyword 'required' must be a list of names");
    out.push_back(name.get<std::string>());
  }
  return out;
}

absl::StatusOr<SchemaJson> PropertiesOf(const SchemaJson& schema) {
  const SchemaJson* const properties = FindKeyword(schema, "properties");
  if (properties == nullptr) return SchemaJson::object();
  if (!properties->is_object()) {
    return InvalidSchema("keyword 'properties' must be an object of schemas");
  }
  if (properties->size() > kSchemaPropertiesMax) {
    return InvalidSchema(
        absl::StrCat("keyword 'properties' has more than ", kSchemaPropertiesMax, " of them"));
  }
  return *properties;
}

}  // namespace shardline
