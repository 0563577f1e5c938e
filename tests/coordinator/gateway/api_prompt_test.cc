#include "coordinator/gateway/api_prompt.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/chat_template.h"
#include "tests/coordinator/gateway/byte_tokenizer.h"

namespace shardline::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// As ChatML, with BOS where the model's text for it is known.
constexpr char kPlain[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{% if mood %}({{ mood }}){% endif %}";
constexpr char kHermes[] =
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} "
    "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr char kRaises[] =
    "{% for m in messages %}{{ m.content }}{% if m.content == 'no' %}"
    "{{ raise_exception('not that') }}{% endif %}{% endfor %}";

class ApiPrompt : public ::testing::Test {
 protected:
  void Use(const char* source, bool adds_bos = false, const char* bos_text = "") {
    tokenizer_ = MakeByteTokenizer(adds_bos);
    auto chat_template = ChatTemplate::Create({.source = source, .bos_token = bos_text});
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    template_ = *std::move(chat_template);
    model_ = {.name = "m",
              .tokenizer = tokenizer_.get(),
              .chat_template = template_.get(),
              .context_tokens_max = 1000};
  }
  void SetUp() override { Use(kPlain); }

  ApiResult<PreparedCall> Prepare(ApiKind kind, const std::string& body) {
    ApiResult<ApiCall> call = ParseApiCall(kind, body, {});
    EXPECT_TRUE(call.ok()) << call.error().message;
    if (!call.ok()) return call.error();
    return PrepareCall(*call, model_, {.seed = 77, .now = absl::UnixEpoch()});
  }
  ApiResult<PreparedCall> Chat(const std::string& messages, const std::string& more = "") {
    return Prepare(ApiKind::kChat, "{\"messages\":" + messages + more + "}");
  }
  ApiResult<PreparedCall> Hi(const std::string& more = "") {
    return Chat(R"([{"role":"user","content":"hi"}])", more.empty() ? "" : "," + more);
  }
  ApiResult<PreparedCall> Completion(const std::string& fields) {
    return Prepare(ApiKind::kCompletion, "{" + fields + "}");
  }

  static std::string TextOf(const ApiResult<PreparedCall>& prepared) {
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    return prepared.ok() ? prepared->prompts[0].text : "";
  }
  static v1::GenerateRequest Only(const ApiResult<PreparedCall>& prepared) {
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    if (!prepared.ok()) return {};
    EXPECT_EQ(prepared->requests.size(), 1u);
    return prepared->requests[0];
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> template_;
  ApiModel model_;
};

TEST_F(ApiPrompt, AConversationBecomesTheTokensOfItsText) {
  const ApiResult<PreparedCall> prepared = Hi(R"("seed":5,"max_tokens":9,"ignore_eos":true,
      "stop_token_ids":[7],"cache_prompt":false,"deadline_ms":50)");
  EXPECT_EQ(TextOf(prepared), "[user]hi\n[assistant]");
  const v1::GenerateRequest request = Only(prepared);
  EXPECT_EQ(request.model(), "m");
  EXPECT_THAT(request.tokens().ids(), ElementsAreArray(ByteTokens("[user]hi\n[assistant]")));
  EXPECT_EQ(request.new_tokens_max(), 9u);
  EXPECT_EQ(request.sampling().seed(), 5u);
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_TRUE(request.no_prefix_cache());
  EXPECT_EQ(request.stop_tokens(0), 7);
  EXPECT_EQ(request.deadline_ms(), 50);
}

TEST_F(ApiPrompt, BosStandsInFrontOnceWhoeverWritesIt) {
  for (const char* bos_text : {"", "<s>"}) {
    Use(kPlain, /*adds_bos=*/true, bos_text);
    const auto ids = Only(Hi()).tokens().ids();
    EXPECT_EQ(ids[0], kByteBos) << bos_text;
    EXPECT_EQ(ids[1], '[') << bos_text;
  }
}

TEST_F(ApiPrompt, PartsDeveloperAndEmptyAnswersRenderAsTheirEquals) {
  EXPECT_EQ(TextOf(Chat(R"([{"role":"developer","content":[{"type":"text","text":"a"},
                                                           {"type":"text","text":"b"}]}])")),
            TextOf(Chat(R"([{"role":"system","content":"ab"}])")));
  EXPECT_EQ(TextOf(Chat(R"([{"role":"user","content":"hi"},{"role":"assistant","content":""},
                            {"role":"user","content":"say yes"}])")),
            "[user]hi\n[assistant]\n[user]say yes\n[assistant]");
}

TEST_F(ApiPrompt, TheTemplateHearsWhatTheClientSaysToIt) {
  EXPECT_EQ(TextOf(Hi(R"("chat_template_kwargs":{"mood":"calm"},"add_generation_prompt":false)")),
            "[user]hi\n(calm)");
  EXPECT_EQ(TextOf(Chat(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])",
                        R"(,"continue_final_message":true)")),
            "[user]a\n[assistant]b");
}

TEST_F(ApiPrompt, AFaultOfTheTemplateIsTheClientsWithItsPlace) {
  Use(kRaises);
  const ApiResult<PreparedCall> prepared = Chat(R"([{"role":"user","content":"no"}])");
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_EQ(prepared.error().param, "messages");
  EXPECT_THAT(prepared.error().message, HasSubstr("not that"));
}

TEST_F(ApiPrompt, WithoutATemplateThereIsNoChatButTextGoesOn) {
  model_.chat_template = nullptr;
  ASSERT_FALSE(Hi().ok());
  EXPECT_EQ(Hi().error().status, 400);
  EXPECT_TRUE(Completion(R"("prompt":"a")").ok());
}

TEST_F(ApiPrompt, ChoicesDifferInTheirSeedsAlone) {
  ApiResult<PreparedCall> prepared = Hi(R"("n":3,"seed":18446744073709551615)");
  ASSERT_TRUE(prepared.ok());
  ASSERT_EQ(prepared->requests.size(), 3u);
  EXPECT_EQ(prepared->requests[0].sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(prepared->requests[1].sampling().seed(), 0u);
  EXPECT_EQ(prepared->requests[2].sampling().seed(), 1u);
  for (v1::GenerateRequest& request : prepared->requests) {
    request.mutable_sampling()->set_seed(0);
    EXPECT_EQ(request.SerializeAsString(), prepared->requests[0].SerializeAsString());
  }
  EXPECT_EQ(Only(Hi()).sampling().seed(), 77u);  // The arrival's, when the client has none.
}

TEST_F(ApiPrompt, ACompletionHasACallForEveryPromptAndChoice) {
  const ApiResult<PreparedCall> prepared = Completion(R"("prompt":["ab","c"],"n":2)");
  ASSERT_TRUE(prepared.ok());
  ASSERT_EQ(prepared->prompts.size(), 2u);
  ASSERT_EQ(prepared->requests.size(), 4u);
  EXPECT_THAT(prepared->requests[1].tokens().ids(), ElementsAreArray(ByteTokens("ab")));
  EXPECT_THAT(prepared->requests[2].tokens().ids(), ElementsAreArray(ByteTokens("c")));
  EXPECT_EQ(prepared->requests[0].new_tokens_max(), 16u);
  const ApiResult<PreparedCall> ids = Completion(R"("prompt":[104,105])");
  EXPECT_THAT(Only(ids).tokens().ids(), ElementsAreArray(ByteTokens("hi")));
  EXPECT_EQ(TextOf(ids), "hi");
}

TEST_F(ApiPrompt, IdsOutsideTheVocabularyAreRefusedByName) {
  const std::pair<const char*, const char*> rows[] = {
      {R"("prompt":"a","logit_bias":{"191222":-100})", "logit_bias.191222"},
      {R"("prompt":"a","stop_token_ids":[259])", "stop_token_ids"},
      {R"("prompt":[1,259])", "prompt"},
  };
  for (const auto& [fields, param] : rows) {
    const ApiResult<PreparedCall> prepared = Completion(fields);
    ASSERT_FALSE(prepared.ok()) << fields;
    EXPECT_EQ(prepared.error().status, 400);
    EXPECT_EQ(prepared.error().param, param);
  }
}

TEST_F(ApiPrompt, TheRoomLeftIsWhatAChatGetsAndMoreIsRefusedWithBothNumbers) {
  model_.context_tokens_max = 30;  // The prompt has 20.
  EXPECT_EQ(Only(Hi()).new_tokens_max(), 10u);
  EXPECT_EQ(Only(Hi(R"("max_tokens":10)")).new_tokens_max(), 10u);
  const ApiResult<PreparedCall> asked = Hi(R"("max_tokens":11)");
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.error().code, "context_length_exceeded");
  EXPECT_EQ(asked.error().param, "messages");
  EXPECT_EQ(asked.error().prompt_tokens, 20u);
  EXPECT_EQ(asked.error().context_tokens, 30u);
  for (const int context : {20, 19, 1}) {  // Exactly full leaves no room either.
    model_.context_tokens_max = context;
    const ApiResult<PreparedCall> prepared = Hi();
    ASSERT_FALSE(prepared.ok()) << context;
    EXPECT_EQ(prepared.error().code, "context_length_exceeded");
    EXPECT_THAT(prepared.error().message, HasSubstr("maximum context length is"));
  }
  model_.context_tokens_max = 21;
  EXPECT_EQ(Only(Hi()).new_tokens_max(), 1u);
  // A default that nobody asked for bends to the room.
  model_.context_tokens_max = 4;
  EXPECT_EQ(Only(Completion(R"("prompt":"abc")")).new_tokens_max(), 1u);
  EXPECT_FALSE(Completion(R"("prompt":"abc","min_tokens":2)").ok());
}

TEST_F(ApiPrompt, APromptIsCutInFrontOnlyIfAskedFor) {
  const ApiResult<PreparedCall> prepared =
      Completion(R"("prompt":"abcdef","truncate_prompt_tokens":2)");
  EXPECT_THAT(Only(prepared).tokens().ids(), ElementsAreArray(ByteTokens("ef")));
}

constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

TEST_F(ApiPrompt, ATemplateThatKnowsToolsIsGivenThem) {
  Use(kHermes);
  const ApiResult<PreparedCall> prepared = Hi(kTools);
  EXPECT_THAT(TextOf(prepared), HasSubstr(R"("name": "f")"));
  EXPECT_THAT(TextOf(prepared), HasSubstr("[user]hi"));
  EXPECT_EQ(prepared->tool_format, ToolFormat::kHermes);
  EXPECT_EQ(Only(prepared).rules().trigger(), "<tool_call>");
}

TEST_F(ApiPrompt, ATemplateThatKnowsNoToolsGetsANoteOfThem) {
  const ApiResult<PreparedCall> prepared = Hi(kTools);
  EXPECT_THAT(TextOf(prepared), HasSubstr("[system]You can call functions"));
  EXPECT_EQ(prepared->tool_format, ToolFormat::kGeneric);
  const ApiResult<PreparedCall> past = Chat(R"([{"role":"user","content":"a"},
      {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":"r"}])");
  EXPECT_EQ(TextOf(past),
            "[user]a\n[assistant]<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
            "[user]<tool_response>r</tool_response>\n[assistant]");
}

TEST_F(ApiPrompt, ToolsThatMayNotBeCalledAreNotShown) {
  Use(kHermes);
  const ApiResult<PreparedCall> prepared = Hi(kTools + std::string(R"(,"tool_choice":"none")"));
  EXPECT_EQ(TextOf(prepared), "[user]hi[assistant]");
  EXPECT_EQ(prepared->tool_format, ToolFormat::kNone);
}

TEST_F(ApiPrompt, TheSameCallGivesTheSameBytes) {
  const auto bytes = [this] { return Only(Hi(R"("stop":"x")")).SerializeAsString(); };
  EXPECT_EQ(bytes(), bytes());
}

}  // namespace
}  // namespace shardline::testing
