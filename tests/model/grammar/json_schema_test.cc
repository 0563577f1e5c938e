// What a grammar made of a JSON schema lets through, keyword by keyword, both ways.

#include "model/grammar/json_schema.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"
#include "model/grammar/json_words.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Schema {
 public:
  explicit Schema(std::string_view json) {
    const auto parsed = nlohmann::ordered_json::parse(json);
    const auto gbnf = GrammarOfJsonSchema(parsed);
    EXPECT_THAT(gbnf, IsOk()) << json;
    if (!gbnf.ok()) return;
    auto grammar = Grammar::Parse(*gbnf);
    EXPECT_THAT(grammar, IsOk()) << *gbnf;
    if (grammar.ok()) walk_.emplace(*std::move(grammar));
  }

  bool Accepts(std::string_view text) {
    if (!walk_) return false;
    GrammarWalk::Place place = walk_->start();
    for (const char byte : text) place = walk_->Next(place, static_cast<uint8_t>(byte));
    EXPECT_FALSE(walk_->met_limit());
    return walk_->CanEnd(place);
  }

 private:
  std::optional<GrammarWalk> walk_;
};

struct Case {
  std::string_view schema;
  std::vector<std::string_view> good;
  std::vector<std::string_view> bad;
};

std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.schema; }

class JsonSchemaTest : public ::testing::TestWithParam<Case> {};

TEST_P(JsonSchemaTest, LetsThroughWhatMatchesAndNothingElse) {
  Schema schema(GetParam().schema);
  for (const std::string_view text : GetParam().good) {
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
    EXPECT_TRUE(schema.Accepts(text)) << text;
  }
  for (const std::string_view text : GetParam().bad) EXPECT_FALSE(schema.Accepts(text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Types, JsonSchemaTest,
    ::testing::Values(
        Case{R"({})", {"1", "\"a\"", "{\"a\": [1, {}]}", "null"}, {"", "nul", "01", "+1", "{a:1}"}},
        Case{R"(true)", {"[]"}, {"[,]", "[1,]"}},
        Case{R"({"type":"null"})", {"null"}, {"0", "\"\""}},
        Case{R"({"type":"boolean"})", {"true", "false"}, {"null", "True"}},
        Case{R"({"type":"integer"})",
             {"0", "-12", "123456789012345678"},
             {"1.0", "1e3", "00", "-", "1234567890123456789"}},
        Case{R"({"type":"number"})", {"0", "-1.5", "1e9", "2.5E-3"}, {".5", "1.", "1e", "1e999"}},
        Case{R"({"type":"string"})",
             {"\"\"", "\"\u00e9\"", R"("\n\u00e9")", R"("\ud83d\ude00")"},
             {"\"", "\"\n\"", R"("\q")", R"("\ud83d")", R"("\ude00")", "'a'", "1"}},
        Case{R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"}},
        Case{R"({"type":"string","nullable":true})", {"\"a\"", "null"}, {"1"}},
        Case{R"({"type":"object"})",
             {"{}", "{\"a\":1, \"b\":[ ]}", "{\n    \"a\":1\n}"},
             {"[]", "{\"a\"}", "{\"a\":1,}"}},
        Case{R"({"type":"array"})", {"[]", "[1,\"a\",null]", "[ 1, 2 ]"}, {"{}", "[1 2]"}}));

INSTANTIATE_TEST_SUITE_P(
    Values, JsonSchemaTest,
    ::testing::Values(
        Case{R"({"enum":["a\"b",1,null,{"k":[true]}]})",
             {R"("a\"b")", "1", "null", R"({"k":[true]})"},
             {"\"a\"", "2", "{}"}},
        Case{R"({"const":"\u00e9\n"})", {"\"\u00e9\\n\""}, {"\"e\""}},
        Case{R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
        Case{R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
             {"7", "\"a\""},
             {"\"ab\"", "7.5"}},
        Case{R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"7", "\"a\""}, {"null"}},
        Case{
            R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},
             "x":{"type":"integer"}},
             "required":["kind","x"]},{"type":"object","properties":{"kind":{"const":"b"}},
             "required":["kind"]}]})",
            {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
            {R"({"kind":"a"})", R"({"kind":"c"})"}},
        Case{R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
             "anyOf":[{"required":["a"]},{"required":["b"]}]})",
             {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
             {"{}", R"({"a":"x"})"}},
        Case{R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
             {"properties":{"b":{"type":"null"},"a":{"minimum":3}},"required":["b"]}]})",
             {R"({"a":3,"b":null})"},
             {R"({"a":2,"b":null})", R"({"a":3})", R"({"b":null})"}}));

INSTANTIATE_TEST_SUITE_P(
    Objects, JsonSchemaTest,
    ::testing::Values(
        Case{R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},
             "required":["a","b"],"additionalProperties":false})",
             {R"({"a":1,"b":"x"})", "{ \"a\": 1,\n  \"b\": \"x\" }"},
             {R"({"b":"x","a":1})", R"({"a":1})", R"({"a":1,"b":"x","c":1})", "{}",
              "{\"a\":\n\n1,\"b\":\"\"}", "{  \"a\":1,\"b\":\"\"}"}},
        Case{
            R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
             "required":["b"]})",
            {R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"c":2})", R"({"a":0,"b":1,"c":2})"},
            {"{}", R"({"a":1})", R"({"a":1,"c":1})", R"({"b":1,"a":1})", R"({"d":1,"b":1})", "1"}},
        Case{R"({"properties":{"a":{},"b":{}}})",
             {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"},
             {R"({"b":1,"a":1})", R"({"a":1,})", R"({,"b":1})"}},
        Case{R"({"type":"object","additionalProperties":{"type":"integer"}})",
             {"{}", R"({"x":1,"y":2})"},
             {R"({"x":"1"})"}},
        Case{R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"x":1})"}},
        Case{
            R"({"type":"object","properties":{"ab":{"type":"integer"},"abc":{"type":"null"},
             "x":false},
             "additionalProperties":{"type":"string"}})",
            {R"({"ab":1,"a":"s","abd":"t","abcd":"","":""})", R"({"b":"s"})"},
            {R"({"a":1})", R"({"ab":"s"})", R"({"abc":"s"})", R"({"a":"","ab":"s"})",
             R"({"\u0061b":"s"})", R"({"x":"s"})"}},
        Case{R"({"type":"object","required":["a"]})", {R"({"a":[1]})"}, {"{}"}},
        Case{
            R"({"type":"object","properties":{"a\"\u00e9\n":{"const":1}},
             "required":["a\"\u00e9\n"]})",
            {"{\"a\\\"\u00e9\\n\":1}"},
            {R"({"a":1})"}},
        Case{
            R"({"type":"object","properties":{"json-value":{"type":"null"},"date":{"format":"date"},
             "root":{}},"required":["json-value"]})",
            {R"({"json-value":null,"date":"2024-01-01","root":[{}]})"},
            {R"({"json-value":1})"}},
        Case{R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
             "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},
             "$ref":"#/$defs/node"})",
             {R"({"v":1,"next":{"v":2,"next":null}})"},
             {R"({"v":1,"next":{"v":2}})", R"({"v":1})"}},
        Case{R"({"type":"object","properties":{"child":{"$ref":"#"}}})",
             {R"({"child":{"child":{}}})"},
             {R"({"child":1})"}},
        Case{
            R"({"definitions":{"a/b":{"type":"integer"}},"$ref":"#/definitions/a~1b","minimum":3})",
            {"3"},
            {"2"}}));

INSTANTIATE_TEST_SUITE_P(
    Arrays, JsonSchemaTest,
    ::testing::Values(
        Case{R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1, 2]"}, {"[\"a\"]"}},
        Case{R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
             {"[1,2]", "[1,2,3]"},
             {"[]", "[1]", "[1,2,3,4]"}},
        Case{R"({"type":"array","items":{},"maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
        Case{R"({"type":"array","items":{},"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
        Case{R"({"items":{"type":"null"},"minItems":1})", {"[null]", "[null,null]"}, {"[]"}},
        Case{R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":2})",
             {"[1,\"a\"]"},
             {"[1]", "[1,\"a\",2]", "[\"a\",1]"}},
        Case{R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"}})",
             {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
             {"[\"a\"]", "[1,\"a\",1]"}},
        Case{R"({"prefixItems":[{"type":"integer"}],"minItems":3,"maxItems":3})",
             {"[1,2,\"x\"]"},
             {"[1,2]", "[1,2,3,4]", "[\"a\",1,2]"}}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, JsonSchemaTest,
    ::testing::Values(
        Case{R"({"type":"integer","minimum":7,"maximum":123})",
             {"7", "9", "10", "99", "100", "123"},
             {"6", "124", "1230", "-7", "07"}},
        Case{R"({"type":"integer","minimum":-15,"maximum":3})",
             {"-15", "-9", "-1", "0", "3"},
             {"-16", "4", "-0"}},
        Case{R"({"type":"integer","exclusiveMinimum":0})", {"1", "999"}, {"0", "-1"}},
        Case{R"({"type":"integer","exclusiveMaximum":0})", {"-1", "-999"}, {"0", "1"}},
        Case{R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
        Case{R"({"type":"integer","minimum":1000,"maximum":1000})", {"1000"}, {"100", "1001"}},
        Case{R"({"type":"integer","minimum":-1e30,"maximum":5})", {"5", "-99999"}, {"6"}},
        Case{R"({"type":"number","minimum":0})", {"0", "0.5", "12.25"}, {"-1", "-0.5"}},
        Case{R"({"type":"number","minimum":0,"maximum":1})",
             {"0", "1", "0.75", "1.0"},
             {"1.1", "-0.1", "2"}},
        Case{R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
             {"0.5", "0.001"},
             {"0", "0.0", "1", "1.0"}},
        Case{R"({"type":"number","minimum":-90,"maximum":90})",
             {"-90", "-90.0", "-89.99", "90", "-0.5", "0"},
             {"90.01", "-90.1", "91"}},
        Case{R"({"type":"number","exclusiveMaximum":-2})",
             {"-2.5", "-3", "-100"},
             {"-2", "-2.0", "-1", "0"}},
        Case{R"({"minimum":3,"exclusiveMinimum":3,"type":"number"})", {"3.5", "4"}, {"3", "3.0"}}));

INSTANTIATE_TEST_SUITE_P(
    Strings, JsonSchemaTest,
    ::testing::Values(
        Case{R"({"type":"string","minLength":2,"maxLength":3})",
             {"\"ab\"", "\"\u00e9\u00e9\u00e9\"", R"("\n\"a")", R"("\ud83d\ude00a")"},
             {"\"a\"", "\"abcd\"", R"("\ud83d\ude00")"}},
        Case{R"({"type":"string","minLength":1})", {"\"a\""}, {"\"\""}},
        Case{R"({"pattern":"^[A-Z]{2}-\\d+$"})",
             {"\"AB-12\""},
             {"\"AB-\"", "\"ABC-1\"", "\"xAB-1\""}},
        Case{R"({"pattern":"b"})", {"\"abc\"", "\"b\""}, {"\"ac\"", "\"\""}},
        Case{R"({"pattern":"^a|b$"})", {"\"axx\"", "\"xxb\""}, {"\"xax\""}},
        Case{R"({"pattern":"^(ab|c)*(?:d|e)?$"})", {"\"\"", "\"abcabd\""}, {"\"abde\""}},
        Case{R"({"pattern":"^[^a\"]\\.\\\\$"})",
             {R"("b.\\")"},
             {R"("a.\\")", R"("bx\\")", R"("\".\\")"}},
        Case{R"({"pattern":"^\"\\n\\x41\\u00e9$"})", {"\"\\\"\\nA\u00e9\""}, {"\"A\""}},
        Case{R"({"pattern":"^.+?$"})", {"\"a\"", R"("\"\t")"}, {"\"\"", R"("\n")"}},
        Case{R"({"format":"date"})",
             {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
             {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"",
              "\"2024-1-1\""}},
        Case{R"({"format":"time"})",
             {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""},
             {"\"24:00:00Z\"", "\"12:00:00\""}},
        Case{R"({"format":"date-time"})",
             {"\"2024-01-31T10:00:00Z\""},
             {"\"2024-01-31 10:00:00Z\""}},
        Case{R"({"format":"duration"})",
             {"\"P1DT2H\"", "\"PT5M30S\"", "\"P2W\""},
             {"\"P\"", "\"1D\"", "\"PT\""}},
        Case{
            R"({"format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
        Case{R"({"format":"ipv4"})",
             {"\"255.0.10.1\""},
             {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        Case{R"({"format":"ipv6"})",
             {"\"::\"", "\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"1::\""},
             {"\"1:2:3\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\""}},
        Case{R"({"format":"email"})",
             {"\"a.b@c-d.org\""},
             {"\"a@b\"", "\"@b.org\"", "\"a b@c.org\""}},
        Case{R"({"format":"hostname"})", {"\"a-b.example.org\""}, {"\"-a\"", "\"a..b\""}},
        Case{R"({"format":"uri"})",
             {"\"https://a.org:80/b?c=d\""},
             {"\"a.org\"", "\"https://a b\""}}));

std::string ErrorOf(std::string_view json) {
  const auto grammar = GrammarOfJsonSchema(nlohmann::ordered_json::parse(json));
  EXPECT_THAT(grammar, FailsWith(FailureKind::kInvalidRequest)) << json;
  return std::string(grammar.status().message());
}

TEST(JsonSchemaErrorTest, AnUnsupportedKeywordIsNamedWithItsPath) {
  for (const std::string keyword :
       {"not", "if", "patternProperties", "propertyNames", "uniqueItems", "contains", "multipleOf",
        "dependentRequired", "minProperties", "unevaluatedProperties", "surprise"}) {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"items":{")" + keyword + R"(":{}}}}})";
    EXPECT_THAT(ErrorOf(schema),
                AllOf(HasSubstr("schema/properties/a/items: "), HasSubstr("'" + keyword + "'")));
  }
}

TEST(JsonSchemaErrorTest, TheInnermostPathIsTheOneThatIsTold) {
  const std::string error = ErrorOf(
      R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/x"}}],
             "$defs":{"x":{"type":"strin"}}})");
  EXPECT_THAT(error, AllOf(HasSubstr("#/$defs/x: keyword 'type'"), HasSubstr("'strin'")));
  EXPECT_THAT(error, Not(HasSubstr("anyOf")));
}

TEST(JsonSchemaErrorTest, WhatNothingMatchesIsRefused) {
  EXPECT_THAT(ErrorOf("false"), HasSubstr("no value"));
  EXPECT_THAT(ErrorOf(R"({"type":"integer","minimum":3,"maximum":2})"), HasSubstr("bounds"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","enum":[1]})"), HasSubstr("enum"));
  EXPECT_THAT(ErrorOf(R"({"type":"array","minItems":2,"maxItems":1})"), HasSubstr("minItems"));
  EXPECT_THAT(ErrorOf(R"({"properties":{"a":false},"required":["a"]})"),
              HasSubstr("'a' is required"));
  EXPECT_THAT(ErrorOf(R"({"required":["a"],"additionalProperties":false})"), HasSubstr("'a'"));
  EXPECT_THAT(ErrorOf(R"({"allOf":[{"type":"string"},{"type":"integer"}]})"),
              HasSubstr("no value"));
}

TEST(JsonSchemaErrorTest, AOneOfThatTwoWaysMayMatchIsRefused) {
  EXPECT_THAT(ErrorOf(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"), HasSubstr("oneOf"));
  EXPECT_THAT(ErrorOf(R"({"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})"),
              HasSubstr("both 0 and 1"));
  EXPECT_THAT(ErrorOf(R"({"oneOf":[{"enum":[1,2]},{"enum":[2,3]}]})"), HasSubstr("oneOf"));
}

TEST(JsonSchemaErrorTest, MalformedSchemasAreRefused) {
  EXPECT_THAT(ErrorOf("3"), HasSubstr("object, true or false"));
  EXPECT_THAT(ErrorOf(R"({"type":7})"), HasSubstr("'type'"));
  EXPECT_THAT(ErrorOf(R"({"properties":[]})"), HasSubstr("'properties'"));
  EXPECT_THAT(ErrorOf(R"({"required":"a"})"), HasSubstr("'required'"));
  EXPECT_THAT(ErrorOf(R"({"enum":3})"), HasSubstr("'enum'"));
  EXPECT_THAT(ErrorOf(R"({"anyOf":[]})"), HasSubstr("'anyOf'"));
  EXPECT_THAT(ErrorOf(R"({"minLength":-1})"), HasSubstr("'minLength'"));
  EXPECT_THAT(ErrorOf(R"({"minItems":1e300})"), HasSubstr("'minItems'"));
  EXPECT_THAT(ErrorOf(R"({"minimum":"3"})"), HasSubstr("'minimum'"));
  EXPECT_THAT(ErrorOf(R"({"minimum":0.5})"), HasSubstr("'minimum'"));
  EXPECT_THAT(ErrorOf(R"({"$ref":"#/nowhere"})"), HasSubstr("'#/nowhere'"));
  EXPECT_THAT(ErrorOf(R"({"$ref":"http://x/y"})"), HasSubstr("'$ref'"));
  EXPECT_THAT(ErrorOf(R"({"format":"horoscope"})"), HasSubstr("'horoscope'"));
  for (const std::string pattern :
       {"(", ")", "[a", "a{2", "\\\\1", "\\\\b", "(?=a)", "a**", "a^b", "*", "[z-a]"}) {
    EXPECT_THAT(ErrorOf(R"({"pattern":")" + pattern + R"("})"), HasSubstr("'pattern' at "))
        << pattern;
  }
}

TEST(JsonSchemaErrorTest, ReferencesThatNeverEndAreRefused) {
  EXPECT_THAT(ErrorOf(R"({"$ref":"#"})"), HasSubstr("left-recursive"));
  EXPECT_THAT(ErrorOf(R"({"allOf":[{"$ref":"#"}]})"), HasSubstr("deep"));
  EXPECT_THAT(ErrorOf(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
              HasSubstr("ever ends"));
}

TEST(JsonSchemaErrorTest, DepthAndSizeHaveLimits) {
  std::string deep;
  for (int i = 0; i < 120; ++i) deep += R"({"items":)";
  EXPECT_THAT(ErrorOf(deep + "{}" + std::string(120, '}')), HasSubstr("deep"));
  std::string deeper;
  for (int i = 0; i < 5000; ++i) deeper += R"({"items":)";
  EXPECT_THAT(ErrorOf(deeper + "{}" + std::string(5000, '}')), HasSubstr("deep"));
  const auto wide = [](int properties) {
    std::string out = R"({"properties":{)";
    for (int i = 0; i < properties; ++i) out += "\"property" + std::to_string(i) + "\":{},";
    return out + R"("z":{}}})";
  };
  std::string many = R"({"enum":[0)";
  for (int i = 0; i < 30000; ++i) many += ",1";
  EXPECT_THAT(ErrorOf(many + "]}"), HasSubstr("more than 20000 values"));
  EXPECT_THAT(ErrorOf(wide(2100)), HasSubstr("more than 2000"));
  EXPECT_THAT(ErrorOf(wide(1900)), HasSubstr("too large"));
  EXPECT_THAT(GrammarOfJsonSchema(nlohmann::ordered_json::parse(wide(500))), IsOk());
  // Each level says the one below it twice.
  std::string bomb = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 20; ++i) {
    const std::string below = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + R"("})";
    bomb += "\"d" + std::to_string(i) + R"(":{"allOf":[{"properties":{"a":)" + below +
            R"(}},{"properties":{"b":)" + below + "}}]},";
  }
  EXPECT_THAT(ErrorOf(bomb + R"("d20":{"not":{}}}})"), HasSubstr("'not'"));
}

// Every way of the anyOf would be a copy of all that stands beside it.
TEST(JsonSchemaErrorTest, WhatIsCopiedTooOftenIsRefused) {
  std::string schema = R"({"properties":{)";
  for (int i = 0; i < 1000; ++i) schema += "\"p" + std::to_string(i) + R"(":{"type":"null"},)";
  schema += R"("z":{}},"anyOf":[)";
  for (int i = 0; i < 1000; ++i) schema += R"({"required":["z"]},)";
  EXPECT_THAT(ErrorOf(schema + "{}]}"), HasSubstr("too large"));
}

TEST(JsonObjectGrammarTest, IsOfObjectsOnly) {
  auto grammar = Grammar::Parse(JsonObjectGrammar());
  ASSERT_THAT(grammar, IsOk());
  GrammarWalk walk(*grammar);
  EXPECT_NE(walk.Next(walk.start(), '{'), GrammarWalk::kNowhere);
  EXPECT_EQ(walk.Next(walk.start(), '['), GrammarWalk::kNowhere);
  EXPECT_EQ(walk.Next(walk.start(), ' '), GrammarWalk::kNowhere);
}

TEST(GrammarBuilderTest, ToolCallsAreComposedOfSchemas) {
  GrammarBuilder grammar;
  const auto schema =
      nlohmann::ordered_json::parse(R"({"properties":{"x":{"type":"integer"}},"required":["x"]})");
  std::vector<std::string> calls;
  for (const std::string name : {"f", "g\"h"}) {
    const auto arguments = AddJsonSchema(schema, "tools[0].function.parameters", &grammar);
    ASSERT_THAT(arguments, IsOk());
    const std::string quoted = nlohmann::ordered_json(name).dump();
    calls.push_back(grammar.AddRule(
        "call",
        GbnfLiteral("{\"name\": " + quoted + ", \"arguments\": ") + " " + *arguments + " \"}\""));
  }
  const auto parsed = Grammar::Parse(grammar.Build(calls[0] + " | " + calls[1]));
  ASSERT_THAT(parsed, IsOk());
  GrammarWalk walk(*parsed);
  const auto accepts = [&](std::string_view text) {
    GrammarWalk::Place place = walk.start();
    for (const char byte : text) place = walk.Next(place, static_cast<uint8_t>(byte));
    return walk.MustEnd(place);
  };
  EXPECT_TRUE(accepts(R"({"name": "f", "arguments": {"x":1}})"));
  EXPECT_TRUE(accepts(R"({"name": "g\"h", "arguments": {"x": -1}})"));
  EXPECT_FALSE(accepts(R"({"name": "h", "arguments": {"x":1}})"));
}

}  // namespace
}  // namespace shardline::testing
