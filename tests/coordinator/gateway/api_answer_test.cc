#include "coordinator/gateway/api_answer.h"

#include <limits>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/answer_rig.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStream[] = R"("stream":true)";

TEST(ApiAnswer, AWholeChatHasEveryFieldThatClientsCheck) {
  AnswerRig rig(ApiKind::kChat, "");
  rig.Feed(0, CallEvents(5).Text("Hello").Text(" you").End());
  const Json body = rig.Whole();
  EXPECT_EQ(body["id"], "id-1");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1'700'000'000);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["system_fingerprint"], "sl-3-abcd");
  EXPECT_EQ(JsonLine(body["choices"]),
            R"([{"index":0,"message":{"role":"assistant","content":"Hello you","refusal":null},)"
            R"("logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(JsonLine(body["usage"]), R"({"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,)"
                                     R"("prompt_tokens_details":{"cached_tokens":2},)"
                                     R"("completion_tokens_details":{"reasoning_tokens":0}})");
  EXPECT_FALSE(body.contains("timings"));
}

TEST(ApiAnswer, AStreamOpensWithTheRoleAndEndsWithOneReason) {
  AnswerRig rig(ApiKind::kChat, kStream);
  rig.Feed(0, CallEvents().Text("Hello").Text(" you").End(v1::FINISH_REASON_LENGTH));
  const std::vector<Json> chunks = rig.Chunks();
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(JsonLine(chunks[0]["choices"]),
            R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null}])");
  EXPECT_EQ(JsonLine(chunks[1]["choices"][0]["delta"]), R"({"content":"Hello"})");
  EXPECT_EQ(JsonLine(chunks[3]["choices"]),
            R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}])");
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_FALSE(chunk.contains("usage"));
    for (const char* key : {"id", "created", "model", "system_fingerprint"}) {
      EXPECT_EQ(chunk[key], chunks[0][key]);
    }
  }
}

TEST(ApiAnswer, NothingIsToldBeforeTheFirstTokenOrTheEnd) {
  AnswerRig rig(ApiKind::kChat, kStream);
  const CallEvents call = CallEvents().Progress(1).Text("a").End();
  EXPECT_EQ(rig.Feed(0, call.events()[0]), "");
  EXPECT_EQ(rig.Feed(0, call.events()[1]), "");  // Nobody asked for progress.
  EXPECT_THAT(rig.Feed(0, call.events()[2]), HasSubstr("assistant"));
  EXPECT_FALSE(rig.answer().complete());
  rig.Feed(0, call.events()[3]);
  EXPECT_TRUE(rig.answer().complete());
}

TEST(ApiAnswer, AnAnswerWithoutTextIsWhole) {
  AnswerRig rig(ApiKind::kChat, kStream);
  rig.Feed(0, CallEvents().End());
  const Heard heard = Listen(rig.Chunks(), 0);
  EXPECT_EQ(heard.roles, 1);
  EXPECT_EQ(heard.text, "");
  EXPECT_EQ(heard.finish_reason, "stop");
}

TEST(ApiAnswer, UsageComesInAChunkOfItsOwnIfAskedFor) {
  AnswerRig rig(ApiKind::kChat, R"("stream":true,"stream_options":{"include_usage":true})");
  rig.Feed(0, CallEvents().Text("a").Text("b").Text("c").End(v1::FINISH_REASON_LENGTH));
  const std::vector<Json> chunks = rig.Chunks();
  EXPECT_EQ(JsonLine(chunks.back()["choices"]), "[]");
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 3);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_TRUE(chunks[i].contains("usage"));
    EXPECT_TRUE(chunks[i]["usage"].is_null());
    EXPECT_FALSE(chunks[i]["choices"].empty());
  }
  EXPECT_EQ(Listen(chunks, 0).finish_reason, "length");
}

TEST(ApiAnswer, UsageRunsAlongIfAskedFor) {
  AnswerRig rig(ApiKind::kChat, R"("stream":true,
      "stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  rig.Feed(0, CallEvents().Text("a").Text("b").End());
  std::vector<int> counts;
  for (const Json& chunk : rig.Chunks()) {
    counts.push_back(chunk["usage"]["completion_tokens"]);
    EXPECT_EQ(chunk["usage"]["prompt_tokens"], 5);
  }
  EXPECT_THAT(counts, ElementsAre(0, 1, 2, 2, 2));
}

TEST(ApiAnswer, ChoicesInterleaveAndEachIsInOrder) {
  for (const bool stream : {false, true}) {
    AnswerRig rig(ApiKind::kChat, stream ? R"("n":3,"stream":true)" : R"("n":3)");
    const std::vector<CallEvents> calls = {CallEvents().Text("a").Text("b").End(),
                                           CallEvents().Text("c").End(v1::FINISH_REASON_LENGTH),
                                           CallEvents().Text("d").Text("e").Text("f").End()};
    std::vector<size_t> next(3, 0);
    std::mt19937 random(3);
    while (!rig.answer().complete()) {
      const size_t choice = random() % 3;
      if (next[choice] == calls[choice].events().size()) continue;
      rig.Feed(choice, calls[choice].events()[next[choice]++]);
    }
    if (stream) {
      const std::vector<Json> chunks = rig.Chunks();
      EXPECT_EQ(Listen(chunks, 0).text, "ab");
      EXPECT_EQ(Listen(chunks, 1).text, "c");
      EXPECT_EQ(Listen(chunks, 2).text, "def");
      for (int i = 0; i < 3; ++i) EXPECT_EQ(Listen(chunks, i).roles, 1);
      EXPECT_EQ(Listen(chunks, 1).finish_reason, "length");
    } else {
      const Json body = rig.Whole();
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(body["choices"][i]["index"], i);
      EXPECT_EQ(body["choices"][2]["message"]["content"], "def");
      EXPECT_EQ(body["usage"]["prompt_tokens"], 5);  // Once, not three times.
      EXPECT_EQ(body["usage"]["completion_tokens"], 6);
    }
  }
}

TEST(ApiAnswer, ACompletionHasItsOwnShape) {
  AnswerRig rig(ApiKind::kCompletion, R"("n":2)");
  for (size_t i = 0; i < 4; ++i) rig.Feed(i, CallEvents().Text(" x").End());
  const Json body = rig.Whole();
  EXPECT_EQ(body["object"], "text_completion");
  ASSERT_EQ(body["choices"].size(), 4u);  // Prompts x n, numbered over all.
  EXPECT_EQ(JsonLine(body["choices"][3]),
            R"({"index":3,"text":" x","logprobs":null,"finish_reason":"stop"})");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
}

TEST(ApiAnswer, EchoPutsTheRightPromptInFrontInStreamAndWhole) {
  for (const char* fields : {R"("echo":true,"n":2)", R"("echo":true,"n":2,"stream":true)"}) {
    AnswerRig rig(ApiKind::kCompletion, fields);
    for (size_t i = 0; i < 4; ++i) rig.Feed(i, CallEvents().Text(" it").End());
    EXPECT_EQ(rig.Whole()["choices"][1]["text"], "Say it");
    EXPECT_EQ(rig.Whole()["choices"][2]["text"], "Tell it");
    if (std::string(fields).find("stream") == std::string::npos) continue;
    EXPECT_EQ(Listen(rig.Chunks(), 2).text, "Tell it");
    EXPECT_EQ(rig.Chunks()[0]["object"], "text_completion");
  }
}

TEST(ApiAnswer, AStopTextEndsTheTextAndNothingOfItShows) {
  for (const char* fields : {R"("stop":"DEFGHIJ")", R"("stop":["DEFGHIJ"],"stream":true)"}) {
    AnswerRig rig(ApiKind::kChat, fields);
    rig.Feed(0, CallEvents().Text("ABCD").Text("EFG").Text("HIJK").End());
    EXPECT_EQ(rig.Whole()["choices"][0]["message"]["content"], "ABC");
    EXPECT_EQ(rig.Whole()["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(rig.Whole()["usage"]["completion_tokens"], 3);
    if (std::string(fields).find("stream") != std::string::npos) {
      EXPECT_EQ(Listen(rig.Chunks(), 0).text, "ABC");
    }
  }
}

TEST(ApiAnswer, AStopTextThatTheLastAllowedTokenCompletesIsAStop) {
  AnswerRig rig(ApiKind::kChat, R"("stop":"b")");
  rig.Feed(0, CallEvents().Text("a").Text("b").End(v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(rig.Whole()["choices"][0]["finish_reason"], "stop");
}

TEST(ApiAnswer, CharactersOverSeveralTokensComeWhole) {
  const std::string text = "\u6B6A \U0001F60A e\u0301 \U0001F468\u200D\U0001F469\u200D\U0001F467";
  AnswerRig rig(ApiKind::kChat, kStream);
  rig.Feed(0, CallEvents().Bytes(text).End());
  const std::vector<Json> chunks = rig.Chunks();
  EXPECT_EQ(Listen(chunks, 0).text, text);
  for (const Json& chunk : chunks) EXPECT_THAT(JsonLine(chunk), Not(HasSubstr("\uFFFD")));
}

TEST(ApiAnswer, BytesThatAreNoTextBecomeReplacementsAlikeInStreamAndWhole) {
  for (const std::string bytes : {"a\xC0\x80z", "\xED\xA0\x80", "\xF5\x80\x80\x80", "z\xE6"}) {
    AnswerRig rig(ApiKind::kChat, kStream);
    rig.Feed(0, CallEvents().Bytes(bytes).End());
    const Heard heard = Listen(rig.Chunks(), 0);
    EXPECT_EQ(heard.text, rig.Whole()["choices"][0]["message"]["content"]);
    EXPECT_THAT(heard.text, HasSubstr("\uFFFD"));
    EXPECT_EQ(heard.finish_reason, "stop");
  }
}

TEST(ApiAnswer, ACharacterThatTheLimitCutsIsNotShown) {
  AnswerRig rig(ApiKind::kChat, kStream);
  rig.Feed(0, CallEvents().Bytes("z\xE6\xAD").End(v1::FINISH_REASON_LENGTH));
  const Heard heard = Listen(rig.Chunks(), 0);
  EXPECT_EQ(heard.text, "z");
  EXPECT_EQ(heard.text, rig.Whole()["choices"][0]["message"]["content"]);
  EXPECT_EQ(heard.finish_reason, "length");
}

TEST(ApiAnswer, TheStreamJoinsToTheWholeWhateverTheTokens) {
  std::mt19937 random(5);
  const std::vector<std::string> letters = {"a",
                                            "b",
                                            "\n",
                                            "\xC3",
                                            "\xA9",
                                            "\U0001F60A",
                                            "\xFF",
                                            "<tool_call>",
                                            "{\"name\": \"f\", \"arguments\": {}}",
                                            "</tool_call>",
                                            " "};
  for (int round = 0; round < 3000; ++round) {
    const bool chat = random() % 3 != 0;
    const ToolFormat format = chat && random() % 2 == 0 ? ToolFormat::kHermes : ToolFormat::kNone;
    std::string fields = R"("stream":true,"stop":["ab","\n\n"])";
    fields +=
        chat ? R"(,"tools":[{"type":"function","function":{"name":"f"}}])" : R"(,"prompt":"p")";
    CallEvents call;
    for (int i = 0; i < 12; ++i) call.Text(letters[random() % letters.size()]);
    call.End();
    AnswerRig rig(chat ? ApiKind::kChat : ApiKind::kCompletion, fields, format);
    rig.Feed(0, call);
    const Heard heard = Listen(rig.Chunks(), 0);
    const Json choice = rig.Whole()["choices"][0];
    ASSERT_EQ(heard.finish_reason, choice["finish_reason"]);
    if (!chat) {
      ASSERT_EQ(heard.text, choice["text"]);
      continue;
    }
    const Json& content = choice["message"]["content"];
    ASSERT_EQ(heard.text, content.is_null() ? "" : content.get<std::string>());
    std::vector<std::string> calls;
    for (const Json& made : choice["message"].value("tool_calls", Json::array())) {
      calls.push_back(made["function"]["name"].get<std::string>() + "(" +
                      made["function"]["arguments"].get<std::string>() + ")");
    }
    ASSERT_EQ(heard.calls, calls);
  }
}

TEST(ApiAnswer, FinishReasonsAreAClosedSet) {
  const std::set<std::string> known = {"stop", "length", "tool_calls", "content_filter"};
  for (int reason = 0; reason < 6; ++reason) {
    AnswerRig rig(ApiKind::kChat, "");
    rig.Feed(0, CallEvents().Text("a").End(static_cast<v1::FinishReason>(reason)));
    const std::string told = rig.Whole()["choices"][0]["finish_reason"];
    EXPECT_TRUE(known.contains(told)) << told;
    EXPECT_EQ(told == "stop", reason == v1::FINISH_REASON_STOP);
  }
}

TEST(ApiAnswer, NothingFollowsTheEndOfAChoice) {
  AnswerRig rig(ApiKind::kChat, kStream);
  const CallEvents call = CallEvents().Text("a").End();
  rig.Feed(0, call);
  EXPECT_EQ(rig.Feed(0, call.events()[1]), "");
  EXPECT_EQ(rig.Feed(0, call.events()[2]), "");
  EXPECT_EQ(Listen(rig.Chunks(), 0).text, "a");
}

TEST(ApiAnswer, ProgressIsToldIfAskedForAndOpensTheStream) {
  AnswerRig rig(ApiKind::kChat, R"("stream":true,"return_progress":true)");
  rig.Feed(0, CallEvents(100).Progress(32).Progress(64).Text("a").End());
  const std::vector<Json> chunks = rig.Chunks();
  EXPECT_EQ(Listen(chunks, 0).roles, 1);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(JsonLine(chunks[2]["prompt_progress"]),
            R"({"total":100,"cache":32,"processed":64,"time_ms":30})");
  EXPECT_EQ(JsonLine(chunks[2]["choices"][0]["delta"]), "{}");
  for (const Json& chunk : chunks) EXPECT_EQ(chunk["choices"].size(), 1u);
}

TEST(ApiAnswer, TimingsComeIfAskedFor) {
  AnswerRig whole(ApiKind::kChat, R"("timings":true)");
  whole.Feed(0, CallEvents().Text("a").Text("b").Text("c").End());
  EXPECT_EQ(JsonLine(whole.Whole()["timings"]),
            R"({"cache_n":2,"prompt_n":3,"prompt_ms":1.5,"predicted_n":3,"predicted_ms":1000.0,)"
            R"("predicted_per_second":2.0})");
  AnswerRig last(ApiKind::kChat, R"("stream":true,"timings":true)");
  last.Feed(0, CallEvents().Text("a").Text("b").End());
  std::vector<bool> has;
  for (const Json& chunk : last.Chunks()) has.push_back(chunk.contains("timings"));
  EXPECT_THAT(has, ElementsAre(false, false, false, true));
  AnswerRig each(ApiKind::kChat, R"("stream":true,"timings_per_token":true)");
  each.Feed(0, CallEvents().Text("a").Text("b").End());
  for (const Json& chunk : each.Chunks()) EXPECT_TRUE(chunk.contains("timings"));
  EXPECT_EQ(each.Chunks()[2]["timings"]["predicted_n"], 2);
}

CallEvents WithLogprobs() {
  CallEvents call;
  for (const int32_t id : ByteTokens("\u00E9!")) {
    call.Bytes(std::string(1, static_cast<char>(id)));
    call.last_token().set_logprob(-0.5f);
    for (const int32_t other : {int32_t{'?'}, id}) {
      v1::TokenLogprob& top = *call.last_token().add_top_logprobs();
      top.set_token(other);
      top.set_logprob(other == id ? -0.5f : -std::numeric_limits<float>::infinity());
    }
  }
  return call;
}

TEST(ApiAnswer, LogprobsOfAChatAreOneEntryATokenWhoseBytesJoinToTheText) {
  AnswerRig rig(ApiKind::kChat, R"("stream":true,"logprobs":true,"top_logprobs":5)");
  rig.Feed(0, WithLogprobs().End());
  std::string bytes;
  Json streamed = Json::array();
  for (const Json& part : Listen(rig.Chunks(), 0).logprobs) {
    EXPECT_TRUE(part["refusal"].is_null());
    for (const Json& entry : part["content"]) {
      for (const Json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
      EXPECT_EQ(entry["top_logprobs"].size(), 2u);
      EXPECT_EQ(entry["top_logprobs"][0]["logprob"], -0.5);     // Sorted,
      EXPECT_EQ(entry["top_logprobs"][1]["logprob"], -9999.0);  // and no infinity.
      EXPECT_EQ(entry["logprob"], -0.5);
      streamed.push_back(entry);
    }
  }
  EXPECT_EQ(bytes, "\u00E9!");
  ASSERT_EQ(streamed.size(), 3u);
  EXPECT_EQ(streamed[0]["token"], "\uFFFD");  // Half a character.
  AnswerRig whole(ApiKind::kChat, R"("logprobs":true,"top_logprobs":5)");
  whole.Feed(0, WithLogprobs().End());
  EXPECT_EQ(whole.Whole()["choices"][0]["logprobs"]["content"], streamed);
}

TEST(ApiAnswer, LogprobsOfACompletionAreColumns) {
  AnswerRig rig(ApiKind::kCompletion, R"("prompt":"p","logprobs":2)");
  rig.Feed(0, WithLogprobs().End());
  EXPECT_EQ(JsonLine(rig.Whole()["choices"][0]["logprobs"]),
            "{\"tokens\":[\"\uFFFD\",\"\uFFFD\",\"!\"],\"token_logprobs\":[-0.5,-0.5,-0.5],"
            "\"top_logprobs\":[{\"\uFFFD\":-0.5,\"?\":-9999.0},{\"\uFFFD\":-0.5,\"?\":-9999.0},"
            "{\"!\":-0.5,\"?\":-9999.0}],\"text_offset\":[0,1,1]}");
}

TEST(ApiAnswer, TokensShowAsIdsIfAskedFor) {
  AnswerRig rig(ApiKind::kChat, R"("logprobs":true,"return_tokens_as_token_ids":true)");
  CallEvents call;
  call.Text("!").last_token().set_logprob(std::numeric_limits<float>::quiet_NaN());
  rig.Feed(0, call.End());
  const Json entry = rig.Whole()["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "token_id:33");
  EXPECT_EQ(entry["logprob"], -9999.0);
}

TEST(ApiAnswer, ControlTokensShowOnlyIfAskedFor) {
  for (const bool show : {false, true}) {
    AnswerRig rig(ApiKind::kChat, show ? R"("skip_special_tokens":false)" : "");
    rig.Feed(0, CallEvents().Text("a").Token(kByteBos, "").Text("b").End());
    EXPECT_EQ(rig.Whole()["choices"][0]["message"]["content"], show ? "a<s>b" : "ab");
    EXPECT_EQ(rig.Whole()["usage"]["completion_tokens"], 3);
  }
}

constexpr char kTool[] = R"("tools":[{"type":"function","function":{"name":"f"}}])";

TEST(ApiAnswer, TwoCallsOfToolsHaveIndexesIdsAndArgumentsThatJoin) {
  const std::string text =
      "Sure.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n"
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": \"\u00E9\"}}</tool_call>";
  AnswerRig rig(ApiKind::kChat, std::string(kStream) + "," + kTool, ToolFormat::kHermes);
  rig.Feed(0, CallEvents().Bytes(text).End());
  const std::vector<Json> chunks = rig.Chunks();
  const Heard heard = Listen(chunks, 0);
  EXPECT_EQ(heard.text, "Sure.");
  EXPECT_THAT(heard.calls, ElementsAre("f({\"a\": 1})", "f({\"b\": \"\u00E9\"})"));
  EXPECT_EQ(heard.finish_reason, "tool_calls");
  const Json message = rig.Whole()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Sure.");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], "{\"b\": \"\u00E9\"}");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  for (const Json& chunk : chunks) {
    for (const Json& call : chunk["choices"][0]["delta"].value("tool_calls", Json::array())) {
      EXPECT_TRUE(call.contains("index"));
      EXPECT_TRUE(call["function"]["arguments"].is_string());
      if (call.contains("id")) {
        EXPECT_EQ(call["id"], message["tool_calls"][call["index"].get<size_t>()]["id"]);
        EXPECT_EQ(call["type"], "function");
      }
    }
  }
}

TEST(ApiAnswer, CallsWithoutTextHaveNullContent) {
  AnswerRig rig(ApiKind::kChat, kTool, ToolFormat::kHermes);
  rig.Feed(0,
           CallEvents().Text("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>").End());
  EXPECT_TRUE(rig.Whole()["choices"][0]["message"]["content"].is_null());
}

TEST(ApiAnswer, ACallThatWasCutShortIsNotCalledWhole) {
  AnswerRig rig(ApiKind::kChat, kTool, ToolFormat::kHermes);
  rig.Feed(0, CallEvents()
                  .Text("<tool_call>{\"name\": \"f\", \"arguments\": {\"a")
                  .End(v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(rig.Whole()["choices"][0]["finish_reason"], "length");
}

TEST(ApiAnswer, AMarkThatIsAControlTokenIsSeen) {
  AnswerRig rig(ApiKind::kChat, kTool, ToolFormat::kMistral);
  rig.Feed(
      0,
      CallEvents().Token(kByteToolCalls, "").Text("[{\"name\": \"f\", \"arguments\": {}}]").End());
  EXPECT_EQ(rig.Whole()["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "f");
}

}  // namespace
}  // namespace shardline::testing
