#include "coordinator/gateway/api_rules.h"

#include "coordinator/gateway/api_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kHi[] = R"("messages":[{"role":"user","content":"hi"}])";
constexpr char kTools[] = R"("tools":[
    {"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object",
        "properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}},
    {"type":"function","function":{"name":"g"}}])";

ApiResult<v1::TextRules> Rules(const std::string& fields, ToolFormat format = ToolFormat::kNone) {
  const std::string body = std::string("{") + kHi + "," + fields + "}";
  const ApiResult<ApiCall> call = ParseApiCall(ApiKind::kChat, body, {});
  EXPECT_TRUE(call.ok()) << call.error().message;
  return RulesOf(*call, format);
}

v1::TextRules Taken(const ApiResult<v1::TextRules>& rules) {
  EXPECT_TRUE(rules.ok()) << rules.error().message;
  return rules.ok() ? *rules : v1::TextRules();
}

// Whether `text` is whole by the rules' grammar.
bool Matches(const v1::TextRules& rules, std::string_view text) {
  const auto grammar = Grammar::Parse(rules.grammar(), rules.trigger());
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  GrammarWalk walk(*grammar);
  GrammarWalk::Place place = walk.start();
  for (const char byte : text) place = walk.Next(place, static_cast<uint8_t>(byte));
  return walk.CanEnd(place);
}

TEST(ApiRules, WithoutWishesThereAreNone) {
  const v1::TextRules rules = Taken(Rules(R"("temperature":0)"));
  EXPECT_EQ(rules.ByteSizeLong(), 0u);
}

TEST(ApiRules, StopTextsAndAMinimumOfTokensTravelAsTheyAre) {
  const v1::TextRules rules = Taken(Rules(R"("stop":["a","b"],"min_tokens":3)"));
  EXPECT_THAT(rules.stop_texts(), ElementsAre("a", "b"));
  EXPECT_EQ(rules.new_tokens_min(), 3u);
}

TEST(ApiRules, AFormatBecomesAGrammar) {
  const v1::TextRules object = Taken(Rules(R"("response_format":{"type":"json_object"})"));
  EXPECT_TRUE(Matches(object, R"({"a": [1, null]})"));
  EXPECT_FALSE(Matches(object, "[1]"));
  const v1::TextRules schema = Taken(Rules(R"("response_format":{"type":"json_schema",
      "json_schema":{"schema":{"type":"object","properties":{"a":{"type":"boolean"}},
      "required":["a"],"additionalProperties":false}}})"));
  EXPECT_TRUE(Matches(schema, R"({"a": true})"));
  EXPECT_FALSE(Matches(schema, R"({"a": 1})"));
  EXPECT_TRUE(Matches(Taken(Rules(R"("grammar":"root ::= \"yes\" | \"no\"")")), "yes"));
}

TEST(ApiRules, AGrammarThatIsNoneIsRefusedWithItsPlace) {
  const ApiResult<v1::TextRules> rules = Rules(R"("grammar":"root ::= \"a")");
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().status, 400);
  EXPECT_EQ(rules.error().param, "grammar");
  EXPECT_THAT(rules.error().message, HasSubstr("1:"));
}

TEST(ApiRules, AKeywordThatCannotBeHeldIsRefusedByName) {
  const ApiResult<v1::TextRules> rules = Rules(R"("response_format":{"type":"json_schema",
      "json_schema":{"schema":{"type":"object","patternProperties":{}}}})");
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().status, 400);
  EXPECT_EQ(rules.error().param, "response_format.json_schema.schema");
  EXPECT_THAT(rules.error().message, HasSubstr("patternProperties"));
}

TEST(ApiRules, RequiredCallsAreTheWholeAnswer) {
  const v1::TextRules rules =
      Taken(Rules(kTools + std::string(R"(,"tool_choice":"required")"), ToolFormat::kHermes));
  EXPECT_EQ(rules.trigger(), "");
  const std::string f = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  const std::string g = R"(<tool_call>{"name": "g", "arguments": {"x": [null]}}</tool_call>)";
  EXPECT_TRUE(Matches(rules, f));
  EXPECT_TRUE(Matches(rules, f + "\n" + g));
  EXPECT_FALSE(Matches(rules, "Sure. " + f));
  EXPECT_FALSE(Matches(rules, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"));
  EXPECT_FALSE(Matches(rules, R"(<tool_call>{"name": "h", "arguments": {}}</tool_call>)"));
}

TEST(ApiRules, ANamedToolIsTheOnlyOneAndOneCallIsOne) {
  const v1::TextRules rules = Taken(Rules(kTools + std::string(R"(,"parallel_tool_calls":false,
          "tool_choice":{"type":"function","function":{"name":"f"}})"),
                                          ToolFormat::kHermes));
  const std::string f = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  EXPECT_TRUE(Matches(rules, f));
  EXPECT_FALSE(Matches(rules, f + "\n" + f));
  EXPECT_FALSE(Matches(rules, R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)"));
}

TEST(ApiRules, EveryFormatHasItsWords) {
  const std::string required = kTools + std::string(R"(,"tool_choice":"required")");
  EXPECT_TRUE(Matches(Taken(Rules(required, ToolFormat::kMistral)),
                      R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, )"
                      R"({"name": "g", "arguments": {}}])"));
  EXPECT_TRUE(Matches(Taken(Rules(required, ToolFormat::kLlama3)),
                      R"({"name": "f", "parameters": {"a": 1}})"));
}

TEST(ApiRules, WhenCallsAreFreeTheGrammarBeginsBehindTheMark) {
  const v1::TextRules rules = Taken(Rules(kTools, ToolFormat::kHermes));
  EXPECT_EQ(rules.trigger(), "<tool_call>");
  EXPECT_TRUE(Matches(rules, "Just text."));
  EXPECT_TRUE(
      Matches(rules, "See: <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(Matches(rules, "See: <tool_call>nothing"));
  EXPECT_EQ(Taken(Rules(kTools, ToolFormat::kLlama3)).grammar(), "");
}

TEST(ApiRules, AFormatBesideFreeCallsIsOneOrTheOther) {
  const std::string fields = kTools + std::string(R"(,"response_format":{"type":"json_object"})");
  const v1::TextRules rules = Taken(Rules(fields, ToolFormat::kHermes));
  EXPECT_TRUE(Matches(rules, R"({"a": 1})"));
  EXPECT_TRUE(Matches(rules, R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)"));
  EXPECT_FALSE(Matches(rules, "text"));
  EXPECT_FALSE(
      Rules(kTools + std::string(R"(,"grammar":"root ::= \"a\"")"), ToolFormat::kHermes).ok());
}

TEST(ApiRules, OnlyAStrictToolMustHaveASchemaThatCanBeHeld) {
  const auto tool = [](const char* strict) {
    return std::string(R"("tools":[{"type":"function","function":{"name":"f","strict":)") + strict +
           R"(,"parameters":{"type":"object","patternProperties":{"x":{}}}}}])";
  };
  const v1::TextRules rules = Taken(Rules(tool("false"), ToolFormat::kHermes));
  EXPECT_TRUE(Matches(rules, R"(<tool_call>{"name": "f", "arguments": {"y": 1}}</tool_call>)"));
  const ApiResult<v1::TextRules> strict = Rules(tool("true"), ToolFormat::kHermes);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().param, "tools[0].function.parameters");
  EXPECT_THAT(strict.error().message, HasSubstr("patternProperties"));
}

TEST(ApiRules, ArgumentsAreAnObject) {
  const ApiResult<v1::TextRules> rules = Rules(
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}])",
      ToolFormat::kHermes);
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().param, "tools[0].function.parameters");
}

}  // namespace
}  // namespace shardline
