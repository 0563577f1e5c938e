#include "model/grammar/schema_merge.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr int kMergeDepthMax = 64;
constexpr int kOverlapDepthMax = 6;

bool IsOneOf(std::string_view keyword, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), keyword) != list.end();
}

// The schema less a keyword and all annotations.
SchemaJson Without(const SchemaJson& schema, std::string_view keyword) {
  SchemaJson out = SchemaJson::object();
  for (const auto& item : schema.items()) {
    if (item.key() != keyword && !IsAnnotation(item.key())) out[item.key()] = item.value();
  }
  return out;
}

const SchemaJson& AdditionalOf(const SchemaJson& schema) {
  static const auto* const anything = new SchemaJson(true);
  const SchemaJson* const additional = FindKeyword(schema, "additionalProperties");
  return additional == nullptr ? *anything : *additional;
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                           absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (!is_escape) {
      out.push_back(text[i]);
      continue;
    }
    const auto digit = [&](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c))
                 ? c - '0'
                 : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
    };
    out.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
    i += 2;
  }
  return out;
}

const SchemaJson* Child(const SchemaJson& parent, const std::string& key) {
  if (parent.is_object()) return FindKeyword(parent, key);
  if (!parent.is_array() || key.empty() || key.size() > 6) return nullptr;
  size_t index = 0;
  for (const char c : key) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return nullptr;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index < parent.size() ? &parent[index] : nullptr;
}

// Of two scalars; two objects or two lists might be, for all that is looked at.
bool MightEqual(const SchemaJson& a, const SchemaJson& b) {
  if (a.is_structured() && b.is_structured()) return a.type() == b.type();
  return a == b;
}

bool HasKeywordOfObjects(const SchemaJson& schema) {
  return FindKeyword(schema, "properties") != nullptr ||
         FindKeyword(schema, "required") != nullptr ||
         FindKeyword(schema, "additionalProperties") != nullptr;
}

}  // namespace

absl::Status SchemaMerger::Work(int64_t values) {
  work_ += values;
  if (work_ <= kSchemaWorkMax) return absl::OkStatus();
  return InvalidSchema("the schema is too large, or says too much by reference");
}

absl::StatusOr<const SchemaJson*> SchemaMerger::Resolve(const std::string& ref) {
  SL_RETURN_IF_ERROR(Work());
  const absl::Status unknown =
      InvalidSchema(absl::StrCat("keyword '$ref': '", ref, "' is not a place in the schema"));
  if (ref.empty() || ref[0] != '#') return unknown;
  const std::string pointer = PercentDecoded(std::string_view(ref).substr(1));
  if (!pointer.empty() && pointer[0] != '/') return unknown;
  const SchemaJson* at = root_;
  for (size_t begin = 0; begin < pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    const std::string key =
        absl::StrReplaceAll(pointer.substr(begin + 1, end - begin - 1), {{"~1", "/"}, {"~0", "~"}});
    at = Child(*at, key);
    if (at == nullptr) return unknown;
    begin = end;
  }
  return at;
}

absl::StatusOr<SchemaJson> SchemaMerger::Merge(const SchemaJson& a, const SchemaJson& b,
                                               int depth) {
  SL_RETURN_IF_ERROR(Work(ValueCount(a) + ValueCount(b)));
  if (depth > kMergeDepthMax) return InvalidSchema("schemas are merged too deep");
  // References stay what they are where nothing is added to them: they may lead back here.
  if (a.is_boolean()) return a.get<bool>() ? b : SchemaJson(false);
  if (b.is_boolean()) return b.get<bool>() ? a : SchemaJson(false);
  for (const SchemaJson* one : {&a, &b}) {
    if (!one->is_object()) return InvalidSchema("a schema is an object, true or false");
    const SchemaJson* const ref = FindKeyword(*one, "$ref");
    if (ref != nullptr) {
      if (!ref->is_string()) return InvalidSchema("keyword '$ref' must be a string");
      SL_ASSIGN_OR_RETURN(const SchemaJson* target, Resolve(ref->get<std::string>()));
      SL_ASSIGN_OR_RETURN(const SchemaJson whole, Merge(*target, Without(*one, "$ref"), depth + 1));
      return one == &a ? Merge(whole, b, depth + 1) : Merge(a, whole, depth + 1);
    }
    SL_ASSIGN_OR_RETURN(const std::vector<SchemaJson> all, SchemasOf(*one, "allOf"));
    if (!all.empty()) {
      SchemaJson whole = Without(*one, "allOf");
      for (const SchemaJson& part : all) {
        SL_ASSIGN_OR_RETURN(whole, Merge(whole, part, depth + 1));
      }
      return one == &a ? Merge(whole, b, depth + 1) : Merge(a, whole, depth + 1);
    }
  }
  SchemaJson out = SchemaJson::object();
  for (const SchemaJson* one : {&a, &b}) {
    for (const auto& item : one->items()) {
      if (IsAnnotation(item.key()) || out.contains(item.key())) continue;
      SL_RETURN_IF_ERROR(MergeKeyword(item.key(), a, b, depth, &out));
    }
  }
  if (HasKeywordOfObjects(a) || HasKeywordOfObjects(b)) {
    SL_RETURN_IF_ERROR(MergeObjects(a, b, depth, &out));
  }
  const SchemaJson* const types = FindKeyword(out, "type");
  const SchemaJson* const values = FindKeyword(out, "enum");
  const bool is_impossible =
      (types != nullptr && types->empty()) || (values != nullptr && values->empty());
  return is_impossible ? SchemaJson(false) : out;
}

absl::Status SchemaMerger::MergeKeyword(const std::string& keyword, const SchemaJson& a,
                                        const SchemaJson& b, int depth, SchemaJson* out) {
  SL_RETURN_IF_ERROR(Work());
  if (IsOneOf(keyword, {"properties", "required", "additionalProperties"})) return absl::OkStatus();
  if (IsOneOf(keyword, {"type", "nullable"})) {
    SL_ASSIGN_OR_RETURN(const auto of_a, TypesOf(a));
    SL_ASSIGN_OR_RETURN(const auto of_b, TypesOf(b));
    if (!of_a && !of_b) return absl::OkStatus();
    SchemaJson types = SchemaJson::array();
    for (const std::string& type : of_a ? *of_a : *of_b) {
      if (!of_a || !of_b) {
        types.push_back(type);
        continue;
      }
      for (const std::string& other : *of_b) {
        if (TypesOverlap(type, other)) types.push_back(type == "number" ? other : type);
      }
    }
    (*out)["type"] = std::move(types);
    return absl::OkStatus();
  }
  if (IsOneOf(keyword, {"enum", "const"})) {
    SL_ASSIGN_OR_RETURN(const auto of_a, ValuesOf(a));
    SL_ASSIGN_OR_RETURN(const auto of_b, ValuesOf(b));
    SchemaJson values = SchemaJson::array();
    for (const SchemaJson& value : of_a ? *of_a : *of_b) {
      SL_RETURN_IF_ERROR(Work());
      const bool is_in_both =
          !of_a || !of_b || std::find(of_b->begin(), of_b->end(), value) != of_b->end();
      if (is_in_both) values.push_back(value);
    }
    (*out)["enum"] = std::move(values);
    return absl::OkStatus();
  }
  const SchemaJson* const in_a = FindKeyword(a, keyword);
  const SchemaJson* const in_b = FindKeyword(b, keyword);
  if (in_a == nullptr || in_b == nullptr || *in_a == *in_b) {
    (*out)[keyword] = in_a == nullptr ? *in_b : *in_a;
    return absl::OkStatus();
  }
  if (in_a->is_number() && in_b->is_number()) {
    const bool is_least =
        IsOneOf(keyword, {"minimum", "exclusiveMinimum", "minLength", "minItems"});
    const bool is_most = IsOneOf(keyword, {"maximum", "exclusiveMaximum", "maxLength", "maxItems"});
    if (is_least || is_most) {
      (*out)[keyword] = (*in_a < *in_b) == is_least ? *in_b : *in_a;
      return absl::OkStatus();
    }
  }
  const bool has_prefix =
      FindKeyword(a, "prefixItems") != nullptr || FindKeyword(b, "prefixItems") != nullptr;
  if (keyword == "items" && !has_prefix) {
    SL_ASSIGN_OR_RETURN((*out)["items"], Merge(*in_a, *in_b, depth + 1));
    return absl::OkStatus();
  }
  return InvalidSchema(
      absl::StrCat("keyword '", keyword, "' is said twice, which is not supported"));
}

absl::Status SchemaMerger::MergeObjects(const SchemaJson& a, const SchemaJson& b, int depth,
                                        SchemaJson* out) {
  SL_ASSIGN_OR_RETURN(const SchemaJson in_a, PropertiesOf(a));
  SL_ASSIGN_OR_RETURN(const SchemaJson in_b, PropertiesOf(b));
  SchemaJson properties = SchemaJson::object();
  for (const SchemaJson* one : {&in_a, &in_b}) {
    for (const auto& item : one->items()) {
      SL_RETURN_IF_ERROR(Work());
      const std::string& name = item.key();
      if (properties.contains(name)) continue;
      const SchemaJson* const of_a = FindKeyword(in_a, name);
      const SchemaJson* const of_b = FindKeyword(in_b, name);
      SL_ASSIGN_OR_RETURN(properties[name],
                          Merge(of_a == nullptr ? AdditionalOf(a) : *of_a,
                                of_b == nullptr ? AdditionalOf(b) : *of_b, depth + 1));
    }
  }
  SL_ASSIGN_OR_RETURN(std::vector<std::string> required, RequiredOf(a));
  SL_ASSIGN_OR_RETURN(const std::vector<std::string> more, RequiredOf(b));
  required.insert(required.end(), more.begin(), more.end());
  SL_ASSIGN_OR_RETURN(SchemaJson additional, Merge(AdditionalOf(a), AdditionalOf(b), depth + 1));
  if (!properties.empty()) (*out)["properties"] = std::move(properties);
  if (!required.empty()) (*out)["required"] = std::move(required);
  const bool is_said = FindKeyword(a, "additionalProperties") != nullptr ||
                       FindKeyword(b, "additionalProperties") != nullptr;
  if (is_said) (*out)["additionalProperties"] = std::move(additional);
  return absl::OkStatus();
}

bool SchemaMerger::MayOverlap(const SchemaJson& a, const SchemaJson& b, int depth) {
  if (depth > kOverlapDepthMax || !Work().ok()) return true;
  for (const SchemaJson* one : {&a, &b}) {
    const SchemaJson& other = one == &a ? b : a;
    if (one->is_boolean() && !one->get<bool>()) return false;
    if (!one->is_object()) return true;
    const SchemaJson* const ref = FindKeyword(*one, "$ref");
    if (ref != nullptr && ref->is_string()) {
      const absl::StatusOr<const SchemaJson*> target = Resolve(ref->get<std::string>());
      if (target.ok() && !MayOverlap(**target, other, depth + 1)) return false;
    }
    const absl::StatusOr<std::vector<SchemaJson>> all = SchemasOf(*one, "allOf");
    for (const SchemaJson& part : all.ok() ? *all : std::vector<SchemaJson>()) {
      if (!MayOverlap(part, other, depth + 1)) return false;
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const absl::StatusOr<std::vector<SchemaJson>> ways = SchemasOf(*one, keyword);
      if (!ways.ok() || ways->empty()) continue;
      if (std::none_of(ways->begin(), ways->end(),
                       [&](const SchemaJson& way) { return MayOverlap(way, other, depth + 1); })) {
        return false;
      }
    }
  }
  return b.is_object() && OwnWordsMayOverlap(a, b, depth);
}

bool SchemaMerger::OwnWordsMayOverlap(const SchemaJson& a, const SchemaJson& b, int depth) {
  const auto values_a = ValuesOf(a);
  const auto values_b = ValuesOf(b);
  const auto types_a = TypesOf(a);
  const auto types_b = TypesOf(b);
  if (!values_a.ok() || !values_b.ok() || !types_a.ok() || !types_b.ok()) return true;
  // Whether a value that `values` and `types` of one side allow may be one of the other's types.
  const auto fits = [](const auto& values, const auto& types, const auto& other_types) {
    if (!other_types) return true;
    return std::any_of(other_types->begin(), other_types->end(), [&](const std::string& other) {
      const bool by_value =
          !values || std::any_of(values->begin(), values->end(),
                                 [&](const SchemaJson& value) { return IsOfType(value, other); });
      const bool by_type =
          !types || std::any_of(types->begin(), types->end(),
                                [&](const std::string& type) { return TypesOverlap(type, other); });
      return by_value && by_type;
    });
  };
  if (!fits(*values_a, *types_a, *types_b) || !fits(*values_b, *types_b, *types_a)) return false;
  if (*values_a && *values_b) {
    return std::any_of((*values_a)->begin(), (*values_a)->end(), [&](const SchemaJson& value) {
      return std::any_of((*values_b)->begin(), (*values_b)->end(),
                         [&](const SchemaJson& other) { return MightEqual(value, other); });
    });
  }
  const auto is_object = [](const auto& types) {
    return types && types->size() == 1 && types->front() == "object";
  };
  if (is_object(*types_a) || is_object(*types_b)) return ObjectsMayOverlap(a, b, depth);
  return true;
}

// Of values that are objects: what either requires must be what both say of it.
bool SchemaMerger::ObjectsMayOverlap(const SchemaJson& a, const SchemaJson& b, int depth) {
  const auto in_a = PropertiesOf(a);
  const auto in_b = PropertiesOf(b);
  auto required = RequiredOf(a);
  const auto more = RequiredOf(b);
  if (!in_a.ok() || !in_b.ok() || !required.ok() || !more.ok()) return true;
  required->insert(required->end(), more->begin(), more->end());
  return std::all_of(required->begin(), required->end(), [&](const std::string& name) {
    const SchemaJson* const of_a = FindKeyword(*in_a, name);
    const SchemaJson* const of_b = FindKeyword(*in_b, name);
    return MayOverlap(of_a == nullptr ? AdditionalOf(a) : *of_a,
                      of_b == nullptr ? AdditionalOf(b) : *of_b, depth + 1);
  });
}

}  // namespace shardline
