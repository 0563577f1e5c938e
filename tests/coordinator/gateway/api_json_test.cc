#include "coordinator/gateway/api_json.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ApiJson, WhatIsNoJsonIsRefusedWithItsPlace) {
  const std::pair<std::string, std::string> rows[] = {
      {"", "line 1, column 1"},
      {"{", "line 1"},
      {"{\"a\": tru", "column 9"},
      {"{\n  \"a\": 1,\n  b\n}", "line 3, column 3"},
      {"{\"a\":1} x", "column 9"},
      {"{\"a\":1,}", "column 8"},
      {"[1, 2", "column 5"},
      {"{\"a\":NaN}", "column 6"},
      {"{'a':1}", "column 2"},
      {"\"\xE6\xAD\"", "ill-formed UTF-8"},      // Half a character.
      {"\"\xED\xA0\x80\"", "ill-formed UTF-8"},  // A surrogate as bytes.
      {"\"\xC0\x80\"", "ill-formed UTF-8"},
      {"\"\\ud83d\"", "surrogate"},
      {"\"\\ud83dx\"", "surrogate"},
      {"\"\\ude0a\"", "surrogate"},
      {"\"a\nb\"", "control character"},
  };
  for (const auto& [body, words] : rows) {
    const ApiResult<Json> json = ParseJson(body);
    ASSERT_FALSE(json.ok()) << body;
    EXPECT_EQ(json.error().status, 400);
    EXPECT_THAT(json.error().message, HasSubstr(words)) << body;
    EXPECT_THAT(json.error().message, HasSubstr("not valid JSON")) << body;
  }
}

TEST(ApiJson, AWholePairOfSurrogatesAndAnyWhiteSpaceAreTaken) {
  const ApiResult<Json> json = ParseJson(" {\r\n\t\"a\" : \"\\ud83d\\ude0a\\u0000\" } \n");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ((*json)["a"], std::string("\xF0\x9F\x98\x8A\0", 5));
}

TEST(ApiJson, AFieldGivenTwiceIsNamed) {
  const ApiResult<Json> json = ParseJson(R"({"a":[{},{"b":1,"c":2,"b":3}]})");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.error().param, "a[1].b");
}

TEST(ApiJson, ANumberBeyondAllRangesIsNamed) {
  const ApiResult<Json> json = ParseJson(R"({"logit_bias":{"5":1e400}})");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.error().status, 400);
  EXPECT_EQ(json.error().param, "logit_bias.5");
  EXPECT_EQ(ParseJson("[[0],[1,2,-1e999]]").error().param, "[1][2]");
}

TEST(ApiJson, DepthAndCountAndSizeHaveLimits) {
  EXPECT_TRUE(ParseJson(Repeated("[", 64) + Repeated("]", 64)).ok());
  const ApiResult<Json> deep = ParseJson(Repeated("[", 200'000));
  ASSERT_FALSE(deep.ok());
  EXPECT_THAT(deep.error().message, HasSubstr("more than 64 levels"));
  EXPECT_FALSE(ParseJson(Repeated("{\"a\":", 200) + "1" + Repeated("}", 200)).ok());

  const ApiResult<Json> many = ParseJson("[1,2,3,4]", {.values_max = 4});
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(many.error().message, HasSubstr("more than 4 values"));
  EXPECT_TRUE(ParseJson("[1,2,3,4]", {.values_max = 5}).ok());

  const ApiResult<Json> large = ParseJson("[1,2,3]", {.bytes_max = 6});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().status, 413);
}

TEST(ApiJson, ObjectsKeepTheOrderOfTheirFields) {
  EXPECT_EQ(JsonLine(*ParseJson(R"({"b":1,"a":{"d":2,"c":3}})")), R"({"b":1,"a":{"d":2,"c":3}})");
}

TEST(ApiJson, ManyFieldsCostNoMoreThanTheirNumber) {
  std::string body = "{\"x\":0";
  for (int i = 0; i < 200'000; ++i) body += ",\"" + std::to_string(i) + "\":0";
  const ApiResult<Json> json = ParseJson(body + "}");  // Quadratic work would take minutes.
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->size(), 200'001u);
}

struct Fields {
  explicit Fields(const char* text) : json(Json::parse(text)), fields(json, "a.", &error) {}
  Json json;
  std::optional<ApiError> error;
  JsonFields fields;
};

TEST(ApiJson, FieldsAreReadByTypeAndNullIsAbsent) {
  Fields f(R"({"b":true,"i":3,"f":3.0,"n":null,"s":"x","d":0.5,"o":{},"l":[]})");
  EXPECT_EQ(f.fields.Bool("b"), true);
  EXPECT_EQ(f.fields.Int("i", 0, 9), 3);
  EXPECT_EQ(f.fields.Int("f", 0, 9), 3);
  EXPECT_EQ(f.fields.Int("n", 0, 9), std::nullopt);
  EXPECT_EQ(f.fields.Int("absent", 0, 9), std::nullopt);
  EXPECT_EQ(f.fields.String("s"), "x");
  EXPECT_EQ(f.fields.Number("d", 0, 1), 0.5);
  EXPECT_NE(f.fields.Object("o"), nullptr);
  EXPECT_NE(f.fields.Array("l"), nullptr);
  EXPECT_FALSE(f.error);
}

TEST(ApiJson, TheFirstWrongFieldIsTheErrorAndOthersAreAbsentFromThereOn) {
  Fields f(R"({"x":"1","y":2,"z":3})");
  EXPECT_EQ(f.fields.Int("y", 0, 9), 2);
  EXPECT_EQ(f.fields.Int("x", 0, 9), std::nullopt);
  EXPECT_EQ(f.fields.Int("z", 0, 2), std::nullopt);
  ASSERT_TRUE(f.error);
  EXPECT_EQ(f.error->param, "a.x");
  EXPECT_EQ(f.error->message, "a.x must be a whole number");
}

TEST(ApiJson, WholeNumbersAreHeldToTheirRange) {
  for (const char* value : {"-1", "10", "2.5", "1e30", "18446744073709551615", "true", "\"3\""}) {
    Fields f(("{\"x\":" + std::string(value) + "}").c_str());
    EXPECT_EQ(f.fields.Int("x", 0, 9), std::nullopt) << value;
    EXPECT_TRUE(f.error) << value;
  }
}

TEST(ApiJson, SeedsAreAny64Bits) {
  Fields f(R"({"a":-1,"b":18446744073709551615,"c":1.5})");
  EXPECT_EQ(f.fields.Bits64("a"), ~uint64_t{0});
  EXPECT_EQ(f.fields.Bits64("b"), ~uint64_t{0});
  EXPECT_EQ(f.fields.Bits64("c"), std::nullopt);
  EXPECT_TRUE(f.error);
}

TEST(ApiJson, WhatNobodyAskedForIsNamed) {
  Fields f(R"({"z":1,"b":true,"m":null,"a":2})");
  f.fields.Bool("b");
  f.fields.Ignore("a");
  EXPECT_THAT(f.fields.Unasked(), ElementsAre("z", "m"));
}

}  // namespace
}  // namespace shardline
