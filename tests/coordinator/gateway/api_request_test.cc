#include "coordinator/gateway/api_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kHi[] = R"("messages":[{"role":"user","content":"hi"}])";

ApiResult<ApiCall> Chat(const std::string& fields, const ApiLimits& limits = {}) {
  const std::string body =
      std::string("{\"model\":\"m\",") + kHi + (fields.empty() ? "" : ",") + fields + "}";
  return ParseApiCall(ApiKind::kChat, body, limits);
}

ApiResult<ApiCall> Completion(const std::string& fields, const ApiLimits& limits = {}) {
  return ParseApiCall(ApiKind::kCompletion, "{" + fields + "}", limits);
}

ApiCall Taken(ApiResult<ApiCall> call) {
  EXPECT_TRUE(call.ok()) << call.error().message;
  return call.ok() ? *std::move(call) : ApiCall{};
}

struct Refused {
  std::string fields;
  std::string param;
  std::string code = "invalid_value";
};

void ExpectRefused(const ApiResult<ApiCall>& call, const Refused& row) {
  SCOPED_TRACE(row.fields);
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.error().status, 400);
  EXPECT_EQ(call.error().type, "invalid_request_error");
  EXPECT_EQ(call.error().param, row.param) << call.error().message;
  EXPECT_EQ(call.error().code, row.code);
}

TEST(ApiRequest, ABareChatHasNeutralDefaults) {
  const ApiCall call = Taken(Chat(""));
  EXPECT_EQ(call.model, "m");
  EXPECT_EQ(call.n, 1);
  EXPECT_EQ(call.sampling.temperature(), 1);
  EXPECT_EQ(call.sampling.top_p(), 1);
  EXPECT_EQ(call.sampling.top_k(), 0u);
  EXPECT_EQ(call.sampling.min_p(), 0);
  EXPECT_EQ(call.sampling.repetition_penalty(), 1);
  EXPECT_FALSE(call.sampling.logprobs());
  EXPECT_EQ(call.new_tokens_max, std::nullopt);
  EXPECT_EQ(call.seed, std::nullopt);
  EXPECT_EQ(call.tool.mode, ToolMode::kNone);
  EXPECT_FALSE(call.format.any());
  EXPECT_FALSE(call.stream);
  EXPECT_TRUE(call.add_generation_prompt);
  EXPECT_THAT(call.ignored, IsEmpty());
}

TEST(ApiRequest, WhatIsOutOfRangeOrOfTheWrongTypeIsRefusedByName) {
  const Refused rows[] = {
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"1")", "temperature"},
      {R"("top_p":1.5)", "top_p"},
      {R"("min_p":-1)", "min_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("frequency_penalty":2.5)", "frequency_penalty"},
      {R"("presence_penalty":-2.5)", "presence_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("n":0)", "n"},
      {R"("n":9)", "n"},
      {R"("n":true)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("n_predict":0)", "n_predict"},
      {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
      {R"("seed":1.5)", "seed"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":false,"stream_options":{})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("top_logprobs":5)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":5)", "logprobs"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop[1]"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stop":3)", "stop"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("logit_bias":{"AI":-100})", "logit_bias.AI"},
      {R"("logit_bias":{"-5":1})", "logit_bias.-5"},
      {R"("logit_bias":{"5 ":1})", "logit_bias.5 "},
      {R"("logit_bias":{"99999999999":1})", "logit_bias.99999999999"},
      {R"("logit_bias":{"5":101})", "logit_bias.5"},
      {R"("logit_bias":{"5":"x"})", "logit_bias.5"},
      {R"("logit_bias":{"5":1e400})", "logit_bias.5"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("response_format":"json")", "response_format"},
      {R"("response_format":{"type":"json_object"},"grammar":"root ::= \"a\"")", "grammar"},
      {R"("continue_final_message":true)", "continue_final_message"},
      {R"("deadline_ms":600001)", "deadline_ms"},
      {R"("model":5)", "model"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("functions":[])", "functions", "unsupported_parameter"},
      {R"("function_call":"auto")", "function_call", "unsupported_parameter"},
      {R"("modalities":["text","audio"])", "modalities", "unsupported_parameter"},
      {R"("audio":{})", "audio", "unsupported_parameter"},
      {R"("web_search_options":{})", "web_search_options", "unsupported_parameter"},
      {R"("prompt_logprobs":1)", "prompt_logprobs", "unsupported_parameter"},
      {R"("guided_regex":"a+")", "guided_regex", "unsupported_parameter"},
      {R"("use_beam_search":true)", "use_beam_search", "unsupported_parameter"},
      {R"("response_format":{"type":"structural_tag"})", "response_format.type",
       "unsupported_parameter"},
      {R"("response_format":{})", "response_format.type", "unsupported_parameter"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema",
       "missing_required_parameter"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
       "response_format.json_schema.schema", "missing_required_parameter"},
  };
  for (const Refused& row : rows) ExpectRefused(Chat(row.fields), row);
}

TEST(ApiRequest, ARefusalOfFunctionsNamesTools) {
  EXPECT_THAT(Chat(R"("functions":[])").error().message, HasSubstr("`tools`"));
}

TEST(ApiRequest, TheBoundsThemselvesAreTaken) {
  const ApiCall call = Taken(Chat(
      R"("temperature":0,"top_p":0,"n":8,"frequency_penalty":-2,"presence_penalty":2,"top_k":-1,
         "logprobs":true,"top_logprobs":20,"stop":["a","b","c","d"],"seed":-1,
         "logit_bias":{"5":-100,"7":100})"));
  EXPECT_EQ(call.sampling.temperature(), 0);
  EXPECT_GT(call.sampling.top_p(), 0);  // 0 on the wire would be "off".
  EXPECT_LT(call.sampling.top_p(), 1e-3);
  EXPECT_EQ(call.n, 8);
  EXPECT_EQ(call.sampling.top_k(), 0u);
  EXPECT_EQ(call.sampling.top_logprobs(), 20u);
  EXPECT_EQ(call.stop_texts.size(), 4u);
  EXPECT_EQ(call.seed, ~uint64_t{0});
  EXPECT_EQ(call.sampling.logit_bias().at(5), -100);
  EXPECT_EQ(call.sampling.logit_bias().at(7), 100);
}

TEST(ApiRequest, TheNewerLimitOfTokensWins) {
  EXPECT_EQ(Taken(Chat(R"("max_tokens":5)")).new_tokens_max, 5u);
  EXPECT_EQ(Taken(Chat(R"("max_tokens":5,"max_completion_tokens":7)")).new_tokens_max, 7u);
  EXPECT_EQ(Taken(Chat(R"("max_tokens":7,"n_predict":5)")).new_tokens_max, 7u);
  EXPECT_EQ(Taken(Chat(R"("n_predict":-1)")).new_tokens_max, std::nullopt);
}

TEST(ApiRequest, UnknownFieldsAreTakenAndNamed) {
  const ApiCall call = Taken(Chat(R"("user":"u","mirostat":2,"temperature":0,"x-new":{"a":[1]})"));
  EXPECT_THAT(call.ignored, ElementsAre("user", "mirostat", "x-new"));
  std::string many = R"("a0":1)";
  for (int i = 1; i < 1000; ++i) many += ",\"a" + std::to_string(i) + "\":1";
  EXPECT_EQ(Taken(Chat(many)).ignored.size(), 16u);
}

TEST(ApiRequest, BothSpellingsOfExtensionsAreTaken) {
  EXPECT_FLOAT_EQ(Taken(Chat(R"("repetition_penalty":1.1)")).sampling.repetition_penalty(), 1.1f);
  EXPECT_FLOAT_EQ(Taken(Chat(R"("repeat_penalty":1.2)")).sampling.repetition_penalty(), 1.2f);
  const ApiCall call = Taken(Chat(
      R"("top_k":40,"min_p":0.05,"min_tokens":3,"ignore_eos":true,"stop_token_ids":[7,8],
         "include_stop_str_in_output":true,"skip_special_tokens":false,"cache_prompt":false,
         "truncate_prompt_tokens":9,"n_probs":3,"return_tokens_as_token_ids":true,
         "timings_per_token":true,"cache_salt":"s","request_id":"r","reasoning_effort":"low",
         "chat_template_kwargs":{"enable_thinking":false},"deadline_ms":1000)"));
  EXPECT_EQ(call.sampling.top_k(), 40u);
  EXPECT_FLOAT_EQ(call.sampling.min_p(), 0.05f);
  EXPECT_EQ(call.new_tokens_min, 3u);
  EXPECT_TRUE(call.ignore_eos);
  EXPECT_THAT(call.stop_tokens, ElementsAre(7, 8));
  EXPECT_TRUE(call.include_stop_text);
  EXPECT_FALSE(call.skip_special_tokens);
  EXPECT_FALSE(call.cache_prompt);
  EXPECT_EQ(call.truncate_prompt_tokens, 9u);
  EXPECT_TRUE(call.sampling.logprobs());
  EXPECT_EQ(call.sampling.top_logprobs(), 3u);
  EXPECT_TRUE(call.tokens_as_ids);
  EXPECT_TRUE(call.timings);
  EXPECT_TRUE(call.timings_per_token);
  EXPECT_EQ(call.cache_salt, "s");
  EXPECT_EQ(call.request_id, "r");
  EXPECT_EQ(call.deadline_ms, 1000);
  EXPECT_EQ(JsonLine(call.template_extra), R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_THAT(call.ignored, IsEmpty());
}

TEST(ApiRequest, StreamOptionsCountOnlyInAStream) {
  const ApiCall call = Taken(Chat(
      R"("stream":true,"return_progress":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true,"other":1})"));
  EXPECT_TRUE(call.stream);
  EXPECT_TRUE(call.include_usage);
  EXPECT_TRUE(call.continuous_usage);
  EXPECT_TRUE(call.return_progress);
  EXPECT_FALSE(Taken(Chat(R"("return_progress":true)")).return_progress);
  EXPECT_FALSE(Taken(Chat(R"("stream":true,"stream_options":null)")).include_usage);
}

TEST(ApiRequest, FormatsOfTheTextAreToldApart) {
  EXPECT_FALSE(Taken(Chat(R"("response_format":{"type":"text"})")).format.any());
  EXPECT_TRUE(Taken(Chat(R"("response_format":{"type":"json_object"})")).format.json_object);
  const ApiCall schema = Taken(Chat(R"("response_format":{"type":"json_schema","json_schema":
      {"name":"x","strict":true,"schema":{"type":"object"}}})"));
  EXPECT_EQ(schema.format.schema, Json::parse(R"({"type":"object"})"));
  EXPECT_EQ(schema.format.param, "response_format.json_schema.schema");
  EXPECT_TRUE(Taken(Chat(R"("json_schema":{"type":"object"})")).format.schema);
  EXPECT_EQ(Taken(Chat(R"("grammar":"root ::= \"a\"")")).format.grammar, "root ::= \"a\"");
  EXPECT_FALSE(Taken(Chat(R"("grammar":"")")).format.any());
}

TEST(ApiRequest, ACompletionTakesAllFourShapesOfPrompt) {
  const std::string model = R"("model":"m",)";
  const auto text = [](const ApiCall& call, size_t i) {
    return std::get<std::string>(call.prompts[i]);
  };
  ApiCall call = Taken(Completion(R"("prompt":"a")"));
  ASSERT_EQ(call.prompts.size(), 1u);
  EXPECT_EQ(text(call, 0), "a");
  EXPECT_EQ(call.new_tokens_max, std::nullopt);
  call = Taken(Completion(R"("prompt":["a","b"],"n":2)"));
  ASSERT_EQ(call.prompts.size(), 2u);
  EXPECT_EQ(text(call, 1), "b");
  call = Taken(Completion(R"("prompt":[1,2])"));
  ASSERT_EQ(call.prompts.size(), 1u);
  EXPECT_THAT(std::get<1>(call.prompts[0]), ElementsAre(1, 2));
  call = Taken(Completion(R"("prompt":[[1],[2,3]])"));
  ASSERT_EQ(call.prompts.size(), 2u);
  EXPECT_THAT(std::get<1>(call.prompts[1]), ElementsAre(2, 3));
}

TEST(ApiRequest, ACompletionThatCannotBeAnsweredIsRefused) {
  const Refused rows[] = {
      {R"("n_predict":0)", "prompt", "missing_required_parameter"},
      {R"("prompt":"")", "prompt"},
      {R"("prompt":[])", "prompt"},
      {R"("prompt":[""],"max_tokens":20)", "prompt[0]"},
      {R"("prompt":[[]])", "prompt[0]"},
      {R"("prompt":["a",[1]],"max_tokens":0)", "max_tokens"},
      {R"("prompt":[1,"a"])", "prompt"},
      {R"("prompt":[-1])", "prompt"},
      {R"("prompt":[1.5])", "prompt"},
      {R"("prompt":[4294967296])", "prompt"},
      {R"("prompt":[[1],["a"]])", "prompt[1]"},
      {R"("prompt":{})", "prompt"},
      {R"("prompt":7)", "prompt"},
      {R"("prompt":["a","b","c"],"n":3)", "prompt"},
      {R"("prompt":"a","logprobs":6)", "logprobs"},
      {R"("prompt":"Your answer: Yes","echo":true,"logprobs":1,"max_tokens":0)", "max_tokens"},
      {R"("prompt":"a","echo":true,"logprobs":1)", "logprobs", "unsupported_parameter"},
      {R"("prompt":"a","best_of":2)", "best_of", "unsupported_parameter"},
      {R"("prompt":"a","suffix":"b")", "suffix", "unsupported_parameter"},
  };
  for (const Refused& row : rows) ExpectRefused(Completion(row.fields), row);
  EXPECT_EQ(Completion(R"("prompt":[""])").error().message, "the prompt is empty");
  EXPECT_EQ(Taken(Completion(R"("n_predict":8,"prompt":"This is")")).new_tokens_max, 8u);
  EXPECT_EQ(Taken(Completion(R"("prompt":"a","best_of":2,"n":2)")).n, 2);
}

TEST(ApiRequest, TheCeilingOfChoicesIsConfigured) {
  EXPECT_TRUE(Chat(R"("n":3)", {.choices_max = 3}).ok());
  EXPECT_FALSE(Chat(R"("n":4)", {.choices_max = 3}).ok());
}

TEST(ApiRequest, ABodyThatIsNoObjectIsRefused) {
  for (const char* body : {"", "[]", "null", "\"a\"", "1", "{\"messages\":"}) {
    const ApiResult<ApiCall> call = ParseApiCall(ApiKind::kChat, body, {});
    ASSERT_FALSE(call.ok()) << body;
    EXPECT_EQ(call.error().status, 400) << body;
  }
}

}  // namespace
}  // namespace shardline
