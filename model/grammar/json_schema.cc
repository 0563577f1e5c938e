#include "model/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/grammar/grammar.h"
#include "model/grammar/json_format.h"
#include "model/grammar/json_keys.h"
#include "model/grammar/json_pattern.h"
#include "model/grammar/json_words.h"
#include "model/grammar/schema_facts.h"
#include "model/grammar/schema_merge.h"

namespace shardline {
namespace {

// What a keyword is about; a schema without `type` is of these types.
struct Keyword {
  std::string_view name;
  std::string_view type;  // Empty: of any.
};
constexpr Keyword kKeywords[] = {
    {"$ref", ""},
    {"type", ""},
    {"nullable", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
};

const Keyword* FindKnown(std::string_view name) {
  const auto* const it = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                      [&](const Keyword& keyword) { return keyword.name == name; });
  return it == std::end(kKeywords) ? nullptr : it;
}

constexpr auto kReplace = SchemaJson::error_handler_t::replace;
constexpr int kJsonNestingMax = 200;
constexpr int64_t kSchemaSizeMax = 20'000;

std::string Quoted(std::string_view name) { return absl::StrCat("'", std::string(name), "'"); }

bool NestsWithin(const SchemaJson& json, int levels) {
  if (levels == 0) return false;
  return std::all_of(json.begin(), json.end(), [&](const SchemaJson& child) {
    return !child.is_structured() || NestsWithin(child, levels - 1);
  });
}

class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaJson* root, GrammarBuilder* grammar)
      : merger_(root), grammar_(grammar), space_(JsonSpace(grammar)) {}

  // The name of a rule, or a group; errors begin with the path.
  absl::StatusOr<std::string> Value(const SchemaJson& schema, const std::string& path, int depth);

 private:
  struct Scope {
    const SchemaJson& schema;
    const std::string& path;
    int depth;
  };
  struct Property {
    std::string name;
    std::string pair;  // Key and value.
    bool is_required = false;
  };
  struct Count {
    int64_t min = 0;
    std::optional<int64_t> max;
  };

  absl::StatusOr<std::string> ValueOf(const Scope& scope);
  absl::Status CheckSize();
  absl::Status CheckKeywords(const SchemaJson& schema) const;
  absl::StatusOr<std::string> Reference(const Scope& scope, const std::string& ref);
  absl::StatusOr<std::string> Alternatives(const Scope& scope, const char* keyword);
  absl::StatusOr<std::string> Values(const Scope& scope, const std::vector<SchemaJson>& values);
  absl::StatusOr<std::vector<std::string>> TypesToSay(const SchemaJson& schema) const;
  absl::StatusOr<std::string> OfType(const Scope& scope, const std::string& type);
  absl::StatusOr<std::vector<Property>> Properties(const Scope& scope);
  absl::StatusOr<std::string> Object(const Scope& scope);
  absl::StatusOr<std::string> Array(const Scope& scope);
  absl::StatusOr<std::string> String(const Scope& scope);
  absl::StatusOr<std::string> Number(const Scope& scope, bool is_integer);
  absl::StatusOr<Count> CountOf(const SchemaJson& schema, const char* min, const char* max) const;

  // `text` with its own path, unless a deeper schema has named one.
  static absl::Status At(const std::string& path, const absl::Status& status);

  SchemaMerger merger_;
  GrammarBuilder* const grammar_;
  const std::string space_;
  absl::flat_hash_map<std::string, std::string> references_;  // To the names of their rules.
};

// Marks an error that knows where it is. Paths have no line ends.
constexpr char kPathEnd = '\n';

absl::Status SchemaCompiler::At(const std::string& path, const absl::Status& status) {
  if (status.message().find(kPathEnd) != absl::string_view::npos) return status;
  return InvalidSchema(absl::StrCat(path, ":", std::string(1, kPathEnd), status.message()));
}

absl::StatusOr<std::string> SchemaCompiler::Value(const SchemaJson& schema, const std::string& path,
                                                  int depth) {
  absl::StatusOr<std::string> out = ValueOf({schema, path, depth});
  if (!out.ok()) return At(path, out.status());
  return out;
}

absl::StatusOr<std::string> SchemaCompiler::ValueOf(const Scope& scope) {
  SL_RETURN_IF_ERROR(CheckSize());
  const SchemaJson& schema = scope.schema;
  if (scope.depth > kSchemaDepthMax) {
    return InvalidSchema(absl::StrCat("schemas are nested more than ", kSchemaDepthMax, " deep"));
  }
  if (schema.is_boolean() && schema.get<bool>()) return JsonValue(grammar_);
  if (schema.is_boolean()) return InvalidSchema("no value matches 'false'");
  if (!schema.is_object()) return InvalidSchema("a schema is an object, true or false");
  SL_RETURN_IF_ERROR(CheckKeywords(schema));
  if (const SchemaJson* ref = FindKeyword(schema, "$ref"); ref != nullptr) {
    if (!ref->is_string()) return InvalidSchema("keyword '$ref' must be a string");
    SchemaJson rest = schema;
    rest.erase("$ref");
    if (!HasAssertions(rest)) return Reference(scope, ref->get<std::string>());
  }
  const bool is_merged =
      FindKeyword(schema, "$ref") != nullptr || FindKeyword(schema, "allOf") != nullptr;
  if (is_merged) {
    SL_ASSIGN_OR_RETURN(const SchemaJson merged, merger_.Merge(schema, SchemaJson::object()));
    return Value(merged, scope.path, scope.depth + 1);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (FindKeyword(schema, keyword) != nullptr) return Alternatives(scope, keyword);
  }
  SL_ASSIGN_OR_RETURN(const auto values, ValuesOf(schema));
  if (values) return Values(scope, *values);
  if (!HasAssertions(schema)) return JsonValue(grammar_);
  SL_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesToSay(schema));
  std::vector<std::string> ways;
  for (const std::string& type : types) {
    SL_ASSIGN_OR_RETURN(std::string way, OfType(scope, type));
    ways.push_back(std::move(way));
  }
  return ways.size() == 1 ? ways[0] : absl::StrCat("(", absl::StrJoin(ways, " | "), ")");
}

absl::Status SchemaCompiler::CheckSize() {
  if (grammar_->bytes() > kGrammarBytesMax) return InvalidSchema("the schema is too large");
  return merger_.Work();
}

absl::Status SchemaCompiler::CheckKeywords(const SchemaJson& schema) const {
  for (const auto& item : schema.items()) {
    if (IsAnnotation(item.key()) || FindKnown(item.key()) != nullptr) continue;
    return InvalidSchema(absl::StrCat("keyword ", Quoted(item.key()), " is not supported"));
  }
  return absl::OkStatus();
}

// A schema may refer to itself, so its rule has a name before it has a body.
absl::StatusOr<std::string> SchemaCompiler::Reference(const Scope& scope, const std::string& ref) {
  const auto known = references_.find(ref);
  if (known != references_.end()) return known->second;
  SL_ASSIGN_OR_RETURN(const SchemaJson* target, merger_.Resolve(ref));
  const std::string name = grammar_->Reserve(ref.substr(ref.rfind('/') + 1));
  references_[ref] = name;
  SL_ASSIGN_OR_RETURN(std::string body, Value(*target, ref, scope.depth + 1));
  grammar_->Define(name, std::move(body));
  return name;
}

absl::StatusOr<std::string> SchemaCompiler::Alternatives(const Scope& scope, const char* keyword) {
  SL_ASSIGN_OR_RETURN(std::vector<SchemaJson> ways, SchemasOf(scope.schema, keyword));
  const std::string kind = keyword;
  for (size_t i = 0; kind == "oneOf" && i < ways.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!merger_.MayOverlap(ways[j], ways[i])) continue;
      return InvalidSchema(absl::StrCat("keyword 'oneOf': a value may match both ", j, " and ", i,
                                        "; use anyOf, or tell them apart by type or const"));
    }
  }
  SchemaJson rest = scope.schema;
  rest.erase(kind);
  const bool has_rest = HasAssertions(rest);
  std::vector<std::string> names;
  for (size_t i = 0; i < ways.size(); ++i) {
    const std::string path = absl::StrCat(scope.path, "/", kind, "/", i);
    SchemaJson way = ways[i];
    if (has_rest) {
      absl::StatusOr<SchemaJson> merged = merger_.Merge(rest, way);
      if (!merged.ok()) return At(path, merged.status());
      way = *std::move(merged);
    }
    if (way.is_boolean() && !way.get<bool>()) continue;
    SL_ASSIGN_OR_RETURN(std::string name, Value(way, path, scope.depth + 1));
    names.push_back(std::move(name));
  }
  if (names.empty()) return InvalidSchema(absl::StrCat("no value matches keyword ", Quoted(kind)));
  return grammar_->AddRule(kind, absl::StrJoin(names, " | "));
}

absl::StatusOr<std::string> SchemaCompiler::Values(const Scope& scope,
                                                   const std::vector<SchemaJson>& values) {
  for (const auto& item : scope.schema.items()) {
    const Keyword* const keyword = FindKnown(item.key());
    if (keyword != nullptr && !keyword->type.empty()) {
      return InvalidSchema(
          absl::StrCat("keyword ", Quoted(item.key()), " beside enum or const is not supported"));
    }
  }
  SL_ASSIGN_OR_RETURN(const auto types, TypesOf(scope.schema));
  std::vector<std::string> ways;
  for (const SchemaJson& value : values) {
    SL_RETURN_IF_ERROR(merger_.Work());
    const bool is_allowed =
        !types || std::any_of(types->begin(), types->end(),
                              [&](const std::string& type) { return IsOfType(value, type); });
    if (!is_allowed) continue;
    ways.push_back(GbnfLiteral(value.dump(-1, ' ', /*ensure_ascii=*/false, kReplace)));
  }
  if (ways.empty()) return InvalidSchema("no value matches enum or const");
  return grammar_->AddRule("value", absl::StrJoin(ways, " | "));
}

absl::StatusOr<std::vector<std::string>> SchemaCompiler::TypesToSay(
    const SchemaJson& schema) const {
  SL_ASSIGN_OR_RETURN(const auto types, TypesOf(schema));
  if (types) return *types;
  std::vector<std::string> out;
  for (const auto& item : schema.items()) {
    const Keyword* const keyword = FindKnown(item.key());
    if (keyword == nullptr || keyword->type.empty()) continue;
    const std::string type(keyword->type);
    if (std::find(out.begin(), out.end(), type) == out.end()) out.push_back(type);
  }
  if (out.empty()) return InvalidSchema("keyword 'nullable' wants a type");
  return out;
}

absl::StatusOr<std::string> SchemaCompiler::OfType(const Scope& scope, const std::string& type) {
  if (type == "null") return std::string("\"null\"");
  if (type == "boolean") return std::string("(\"true\" | \"false\")");
  if (type == "object") return Object(scope);
  if (type == "array") return Array(scope);
  if (type == "string") return String(scope);
  return Number(scope, type == "integer");
}

absl::StatusOr<std::vector<SchemaCompiler::Property>> SchemaCompiler::Properties(
    const Scope& scope) {
  SL_ASSIGN_OR_RETURN(SchemaJson properties, PropertiesOf(scope.schema));
  SL_ASSIGN_OR_RETURN(const std::vector<std::string> required, RequiredOf(scope.schema));
  const SchemaJson* const additional = FindKeyword(scope.schema, "additionalProperties");
  for (const std::string& name : required) {
    if (properties.contains(name)) continue;
    properties[name] = additional == nullptr ? SchemaJson(true) : *additional;
  }
  std::vector<Property> out;
  for (const auto& item : properties.items()) {
    SL_RETURN_IF_ERROR(CheckSize());
    const std::string& name = item.key();
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    if (item.value().is_boolean() && !item.value().get<bool>()) {
      if (!is_required) continue;
      return InvalidSchema(absl::StrCat("property ", Quoted(name), " is required and not allowed"));
    }
    SL_ASSIGN_OR_RETURN(
        std::string value,
        Value(item.value(), absl::StrCat(scope.path, "/properties/", name), scope.depth + 1));
    const std::string key = SchemaJson(name).dump(-1, ' ', false, kReplace) + ":";
    out.push_back({.name = name,
                   .pair = absl::StrCat(GbnfLiteral(key), " ", space_, " ", value),
                   .is_required = is_required});
  }
  return out;
}

// What may stand from a property on is a rule, so the size is that of the schema: one rule for
// where it would be the first, one for behind another.
absl::StatusOr<std::string> SchemaCompiler::Object(const Scope& scope) {
  SL_ASSIGN_OR_RETURN(const SchemaJson declared, PropertiesOf(scope.schema));
  SL_ASSIGN_OR_RETURN(const std::vector<Property> properties, Properties(scope));
  const SchemaJson* const said = FindKeyword(scope.schema, "additionalProperties");
  const SchemaJson additional =
      said == nullptr ? SchemaJson(declared.empty() && properties.empty()) : *said;
  const bool has_additional = !additional.is_boolean() || additional.get<bool>();
  const std::string comma = absl::StrCat("\",\" ", space_, " ");
  std::string first = "\"\"";
  std::string next = "\"\"";
  if (has_additional) {
    SL_ASSIGN_OR_RETURN(const std::string value,
                        Value(additional, scope.path + "/additionalProperties", scope.depth + 1));
    std::vector<std::string> names;
    for (const auto& item : declared.items()) names.push_back(item.key());
    for (const Property& property : properties) names.push_back(property.name);
    const std::string pair = grammar_->AddRule(
        "more", absl::StrCat(AddJsonKeyBut(names, grammar_), " \":\" ", space_, " ", value));
    next = absl::StrCat("(", comma, pair, ")*");
    first = absl::StrCat("(", pair, " ", next, ")?");
  }
  const auto first_required =
      std::find_if(properties.begin(), properties.end(),
                   [](const Property& property) { return property.is_required; });
  const auto optional_count = static_cast<size_t>(first_required - properties.begin());
  for (size_t i = properties.size(); i-- > 0;) {
    SL_RETURN_IF_ERROR(CheckSize());
    const Property& property = properties[i];
    const std::string rest = absl::StrCat(property.pair, " ", next);
    if (i <= optional_count) {
      first = grammar_->AddRule(property.name,
                                property.is_required ? rest : absl::StrCat(rest, " | ", first));
    }
    if (i > 0) {
      next = grammar_->AddRule(absl::StrCat(property.name, "-next"),
                               property.is_required ? absl::StrCat(comma, rest)
                                                    : absl::StrCat(comma, rest, " | ", next));
    }
  }
  return grammar_->AddRule("object",
                           absl::StrCat("\"{\" ", space_, " ", first, " ", space_, " \"}\""));
}

absl::StatusOr<SchemaCompiler::Count> SchemaCompiler::CountOf(const SchemaJson& schema,
                                                              const char* min,
                                                              const char* max) const {
  Count out;
  for (const char* keyword : {min, max}) {
    const SchemaJson* const value = FindKeyword(schema, keyword);
    if (value == nullptr) continue;
    const double number = value->is_number() ? value->get<double>() : -1.0;
    if (number < 0 || std::floor(number) != number) {
      return InvalidSchema(absl::StrCat("keyword ", Quoted(keyword), " must be a whole number"));
    }
    const auto count = static_cast<int64_t>(std::min<double>(number, kSchemaCountMax + 1));
    if (keyword == max) {
      out.max = std::min(count, kSchemaCountMax);
    } else if (count > kSchemaCountMax) {
      return InvalidSchema(
          absl::StrCat("keyword ", Quoted(keyword), " is at most ", kSchemaCountMax));
    } else {
      out.min = count;
    }
  }
  if (out.max && *out.max < out.min) {
    return InvalidSchema(absl::StrCat("keyword ", Quoted(min), " is more than ", Quoted(max)));
  }
  return out;
}

absl::StatusOr<std::string> SchemaCompiler::Array(const Scope& scope) {
  SL_ASSIGN_OR_RETURN(Count count, CountOf(scope.schema, "minItems", "maxItems"));
  SL_ASSIGN_OR_RETURN(const std::vector<SchemaJson> prefix, SchemasOf(scope.schema, "prefixItems"));
  const SchemaJson* const said = FindKeyword(scope.schema, "items");
  const SchemaJson items = said == nullptr ? SchemaJson(true) : *said;
  const auto prefix_count = static_cast<int64_t>(prefix.size());
  if (items.is_boolean() && !items.get<bool>()) {
    count.max = std::min(count.max.value_or(prefix_count), prefix_count);
    if (*count.max < count.min)
      return InvalidSchema("keyword 'minItems' is more than there may be");
  }
  const std::string comma = absl::StrCat("\",\" ", space_, " ");
  std::string rest = "\"\"";  // Of what may stand from an item on.
  if (!count.max || *count.max > prefix_count) {
    SL_ASSIGN_OR_RETURN(const std::string item,
                        Value(items, scope.path + "/items", scope.depth + 1));
    const int64_t min = std::max<int64_t>(0, count.min - prefix_count);
    const auto repeated = [&](int64_t taken) {
      const std::string most = count.max ? absl::StrCat(*count.max - prefix_count - taken) : "";
      return absl::StrCat("(", comma, item, "){", std::max<int64_t>(0, min - taken), ",", most,
                          "}");
    };
    rest = repeated(0);
    if (prefix.empty()) rest = absl::StrCat("(", item, " ", repeated(1), ")", min == 0 ? "?" : "");
  }
  for (int64_t i = std::min(prefix_count, count.max.value_or(prefix_count)); i-- > 0;) {
    SL_ASSIGN_OR_RETURN(const std::string item,
                        Value(prefix[static_cast<size_t>(i)],
                              absl::StrCat(scope.path, "/prefixItems/", i), scope.depth + 1));
    rest = grammar_->AddRule(
        absl::StrCat("item-", i),
        absl::StrCat(i == 0 ? "" : comma, item, " ", rest, i < count.min ? "" : " | \"\""));
  }
  return grammar_->AddRule("array",
                           absl::StrCat("\"[\" ", space_, " ", rest, " ", space_, " \"]\""));
}

absl::StatusOr<std::string> SchemaCompiler::String(const Scope& scope) {
  const SchemaJson* const pattern = FindKeyword(scope.schema, "pattern");
  const SchemaJson* const format = FindKeyword(scope.schema, "format");
  const bool has_length = FindKeyword(scope.schema, "minLength") != nullptr ||
                          FindKeyword(scope.schema, "maxLength") != nullptr;
  if ((pattern != nullptr) + (format != nullptr) + has_length > 1) {
    return InvalidSchema(
        "only one of pattern, format and minLength or maxLength is supported at a time");
  }
  if (pattern != nullptr) {
    if (!pattern->is_string()) return InvalidSchema("keyword 'pattern' must be a string");
    absl::StatusOr<std::string> rule =
        AddJsonPattern(pattern->get_ref<const std::string&>(), grammar_);
    if (rule.ok()) return rule;
    return InvalidSchema(absl::StrCat("keyword 'pattern' ", rule.status().message()));
  }
  if (format != nullptr) {
    if (!format->is_string()) return InvalidSchema("keyword 'format' must be a string");
    const std::string& name = format->get_ref<const std::string&>();
    std::optional<std::string> rule = AddJsonFormat(name, grammar_);
    if (rule) return *std::move(rule);
    return InvalidSchema(absl::StrCat("keyword 'format': ", Quoted(name), " is not supported"));
  }
  if (!has_length) return JsonString(grammar_);
  SL_ASSIGN_OR_RETURN(const Count count, CountOf(scope.schema, "minLength", "maxLength"));
  return grammar_->AddRule("string",
                           absl::StrCat("\"\\\"\" ", JsonCharacter(grammar_), "{", count.min, ",",
                                        count.max ? absl::StrCat(*count.max) : "", "} \"\\\"\""));
}

absl::StatusOr<std::string> SchemaCompiler::Number(const Scope& scope, bool is_integer) {
  JsonNumberBounds bounds;
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const SchemaJson* const value = FindKeyword(scope.schema, keyword);
    if (value == nullptr) continue;
    if (!value->is_number()) {
      return InvalidSchema(absl::StrCat("keyword ", Quoted(keyword), " must be a number"));
    }
    const auto number = value->get<double>();
    const double whole = std::floor(number);
    const bool is_whole = whole == number;
    if (!is_whole && !is_integer) {
      return InvalidSchema(absl::StrCat("keyword ", Quoted(keyword),
                                        " is supported for whole numbers, or the type integer"));
    }
    const std::string_view name = keyword;
    const bool is_low = name.ends_with("inimum");
    const bool is_exclusive = name.starts_with("exclusive");
    if (std::abs(number) > static_cast<double>(kJsonIntegerMax)) {
      if (is_low == (number < 0)) continue;
      return InvalidSchema(
          absl::StrCat("keyword ", Quoted(keyword), " is beyond ", kJsonIntegerMax));
    }
    int64_t bound =
        value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(whole);
    bool is_out = is_exclusive;
    if (is_integer) {
      if (is_low && (is_exclusive || !is_whole)) ++bound;
      if (!is_low && is_exclusive && is_whole) --bound;
      is_out = false;
    }
    std::optional<int64_t>& kept = is_low ? bounds.low : bounds.high;
    bool& without = is_low ? bounds.without_low : bounds.without_high;
    const bool is_tighter = !kept || (is_low ? bound > *kept : bound < *kept);
    if (is_tighter) without = is_out;
    if (!is_tighter && bound == *kept) without = without || is_out;
    if (is_tighter) kept = bound;
  }
  if (!bounds.low && !bounds.high) return is_integer ? JsonInteger(grammar_) : JsonNumber(grammar_);
  const std::string spelled = is_integer ? JsonIntegerBetween(bounds.low.value_or(-kJsonIntegerMax),
                                                              bounds.high.value_or(kJsonIntegerMax))
                                         : JsonNumberBetween(bounds);
  if (spelled.empty()) return InvalidSchema("no number is within its bounds");
  return grammar_->AddRule(is_integer ? "integer" : "number", spelled);
}

}  // namespace

absl::StatusOr<std::string> AddJsonSchema(const SchemaJson& schema, std::string_view path,
                                          GrammarBuilder* grammar) {
  if (!NestsWithin(schema, kJsonNestingMax)) {
    return InvalidSchema(
        absl::StrCat(std::string(path), ": it is nested more than ", kJsonNestingMax, " deep"));
  }
  if (ValueCount(schema) > kSchemaSizeMax) {
    return InvalidSchema(
        absl::StrCat(std::string(path), ": it has more than ", kSchemaSizeMax, " values"));
  }
  absl::StatusOr<std::string> rule =
      SchemaCompiler(&schema, grammar).Value(schema, std::string(path), 0);
  if (rule.ok()) return rule;
  return InvalidSchema(absl::StrReplaceAll(rule.status().message(), {{"\n", " "}}));
}

absl::StatusOr<std::string> GrammarOfJsonSchema(const SchemaJson& schema) {
  GrammarBuilder grammar;
  SL_ASSIGN_OR_RETURN(const std::string value, AddJsonSchema(schema, "schema", &grammar));
  std::string out = grammar.Build(value);
  const auto compiled = Grammar::Parse(out);
  if (compiled.ok()) return out;
  return InvalidSchema(absl::StrCat("schema: ", compiled.status().message()));
}

std::string JsonObjectGrammar() {
  GrammarBuilder grammar;
  const std::string object = JsonObject(&grammar);
  return grammar.Build(object);
}

}  // namespace shardline
