#include <string>

#include "coordinator/gateway/api_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

ApiResult<ApiCall> Chat(const std::string& messages, const std::string& more = "") {
  return ParseApiCall(ApiKind::kChat, "{\"messages\":" + messages + more + "}", {});
}

std::string Normal(const std::string& messages) {
  const ApiResult<ApiCall> call = Chat(messages);
  EXPECT_TRUE(call.ok()) << messages << ": " << call.error().message;
  return call.ok() ? JsonLine(call->messages) : "";
}

struct Refused {
  std::string input;
  std::string param;
  std::string code = "invalid_value";
};

void ExpectRefused(const ApiResult<ApiCall>& call, const Refused& row) {
  SCOPED_TRACE(row.input);
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.error().status, 400);
  EXPECT_EQ(call.error().param, row.param) << call.error().message;
  EXPECT_EQ(call.error().code, row.code);
}

TEST(ApiMessages, AStringIsTheSameAsPartsThatJoinToIt) {
  const std::string expected = R"([{"role":"user","content":"hi there"}])";
  EXPECT_EQ(Normal(R"([{"role":"user","content":"hi there"}])"), expected);
  EXPECT_EQ(Normal(R"([{"role":"user","content":[{"type":"text","text":"hi there"}]}])"), expected);
  EXPECT_EQ(Normal(R"([{"role":"user","content":[{"type":"text","text":"hi "},
                                                 {"type":"text","text":"there"}]}])"),
            expected);
}

TEST(ApiMessages, TheDeveloperIsTheSystem) {
  EXPECT_EQ(Normal(R"([{"role":"developer","content":"x"}])"),
            Normal(R"([{"role":"system","content":"x"}])"));
}

TEST(ApiMessages, AnAssistantMayHaveSaidNothing) {
  const std::string calls =
      R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}])";
  for (const char* content : {"\"content\":null,", ""}) {
    EXPECT_THAT(Normal(std::string("[{\"role\":\"assistant\",") + content + calls + "}]"),
                HasSubstr(R"("content":null,"tool_calls":[{"id":"1")"));
  }
  EXPECT_EQ(Normal(R"([{"role":"user","content":"hi"},{"role":"assistant","content":""},
                       {"role":"user","content":"say yes"}])"),
            R"([{"role":"user","content":"hi"},{"role":"assistant","content":""},)"
            R"({"role":"user","content":"say yes"}])");
  EXPECT_EQ(Normal(R"([{"role":"assistant"}])"), R"([{"role":"assistant","content":""}])");
}

TEST(ApiMessages, ArgumentsAreTextWhateverTheClientSent) {
  for (const char* arguments : {R"("{\"a\":1}")", R"({"a":1})"}) {
    EXPECT_THAT(Normal(std::string(R"([{"role":"assistant","tool_calls":[{"id":"1",
        "function":{"name":"f","arguments":)") +
                       arguments + "}}]}]"),
                HasSubstr(R"("arguments":"{\"a\":1}")"));
  }
}

TEST(ApiMessages, OnlyKnownFieldsReachTheTemplate) {
  EXPECT_EQ(Normal(R"([{"role":"tool","content":"1","tool_call_id":"c","name":"f","evil":1}])"),
            R"([{"role":"tool","content":"1","name":"f","tool_call_id":"c"}])");
}

TEST(ApiMessages, WhatCannotBeReadIsRefusedByItsPlace) {
  const Refused rows[] = {
      {"[]", "messages"},
      {"null", "messages", "missing_required_parameter"},
      {"{}", "messages"},
      {"[7]", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role", "missing_required_parameter"},
      {R"([{"role":"robot","content":"x"}])", "messages[0].role"},
      {R"([{"role":"function","content":"x"}])", "messages[0].role", "unsupported_parameter"},
      {R"([{"role":"user"}])", "messages[0].content", "missing_required_parameter"},
      {R"([{"role":"user","content":null}])", "messages[0].content", "missing_required_parameter"},
      {R"([{"role":"user","content":7}])", "messages[0].content"},
      {R"([{"role":"user","content":"a"},{"role":"user","content":[
            {"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[1].content[0]", "unsupported_parameter"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}])",
       "messages[0].content[1]", "unsupported_parameter"},
      {R"([{"role":"user","content":[{"text":"a"}]}])", "messages[0].content[0].type",
       "missing_required_parameter"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "missing_required_parameter"},
      {R"([{"role":"user","content":["a"]}])", "messages[0].content[0]"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}])",
       "messages[0].tool_calls[0].id", "missing_required_parameter"},
      {R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])", "messages[0].tool_calls[0].function",
       "missing_required_parameter"},
      {R"([{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":7}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","content":"","function_call":{}}])", "messages[0].function_call",
       "unsupported_parameter"},
  };
  for (const Refused& row : rows) ExpectRefused(Chat(row.input), row);
}

constexpr char kHi[] = R"([{"role":"user","content":"hi"}])";
constexpr char kTools[] = R"(,"tools":[{"type":"function","function":{"name":"f",
    "description":"d","parameters":{"type":"object"},"strict":true}},
    {"type":"function","function":{"name":"g"}}])";

TEST(ApiTools, ToolsAreOfferedUnlessTheClientSaysOtherwise) {
  const auto wish = [](const std::string& more) {
    const ApiResult<ApiCall> call = Chat(kHi, kTools + more);
    EXPECT_TRUE(call.ok()) << call.error().message;
    return call->tool;
  };
  EXPECT_EQ(wish("").mode, ToolMode::kAuto);
  EXPECT_TRUE(wish("").is_parallel);
  EXPECT_EQ(wish(R"(,"tool_choice":"none")").mode, ToolMode::kNone);
  EXPECT_EQ(wish(R"(,"tool_choice":"required")").mode, ToolMode::kRequired);
  const ToolWish named = wish(
      R"(,"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":false)");
  EXPECT_EQ(named.mode, ToolMode::kNamed);
  EXPECT_EQ(named.named, "g");
  EXPECT_FALSE(named.is_parallel);
  EXPECT_EQ(JsonLine(wish("").tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}},{"type":"function","function":{"name":"g",)"
            R"("parameters":{"type":"object","properties":{}}}}])");
}

TEST(ApiTools, WhatCannotBeCalledIsRefused) {
  const Refused rows[] = {
      {R"(,"tools":[])", "tools"},
      {R"(,"tools":{})", "tools"},
      {R"(,"tools":[7])", "tools[0]"},
      {R"(,"tools":[{"type":"retrieval"}])", "tools[0].type", "unsupported_parameter"},
      {R"(,"tools":[{"type":"function"}])", "tools[0].function", "missing_required_parameter"},
      {R"(,"tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":"f"}},
                    {"type":"function","function":{"name":"f"}}])",
       "tools[1].function.name"},
      {R"(,"tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters"},
      {R"(,"tool_choice":"required")", "tool_choice"},
      {R"(,"tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {kTools + std::string(R"(,"tool_choice":"sometimes")"), "tool_choice"},
      {kTools + std::string(R"(,"tool_choice":{"type":"function","function":{"name":"h"}})"),
       "tool_choice"},
      {kTools + std::string(R"(,"tool_choice":{"type":"custom"})"), "tool_choice.type",
       "unsupported_parameter"},
      {kTools + std::string(R"(,"parallel_tool_calls":1)"), "parallel_tool_calls"},
  };
  for (const Refused& row : rows) ExpectRefused(Chat(kHi, row.input), row);
}

TEST(ApiTools, AChoiceThatNeedsNoToolsIsTakenWithoutThem) {
  for (const char* choice : {"none", "auto"}) {
    EXPECT_TRUE(Chat(kHi, std::string(",\"tool_choice\":\"") + choice + "\"").ok()) << choice;
  }
}

TEST(ApiMessages, OnlyTheAssistantsLastMessageCanGoOn) {
  EXPECT_FALSE(Chat(kHi, R"(,"continue_final_message":true)").ok());
  const char* open = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])";
  const ApiResult<ApiCall> call = Chat(open, R"(,"continue_final_message":true)");
  ASSERT_TRUE(call.ok());
  EXPECT_TRUE(call->continue_final_message);
  EXPECT_FALSE(call->add_generation_prompt);
  EXPECT_FALSE(Chat(open, R"(,"continue_final_message":true,"add_generation_prompt":true)").ok());
}

}  // namespace
}  // namespace shardline
