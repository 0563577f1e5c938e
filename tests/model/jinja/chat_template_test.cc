#include "model/chat_template.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::EndsWith;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusHas;

// Tools, calls with their arguments as objects, and results.
constexpr char kTooled[] =
    R"({%- if tools %}{% for tool in tools %}[{{ tool | tojson }}]{% endfor %}
{% endif %}
{%- for m in messages %}
<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.name }}
 {{- c.function.arguments | tojson }}){% endfor %}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %})";

std::unique_ptr<const ChatTemplate> Create(std::string_view source,
                                           std::string_view tool_source = "") {
  auto chat = ChatTemplate::Create({.source = std::string(source),
                                    .tool_source = std::string(tool_source),
                                    .bos_token = "<s>",
                                    .eos_token = "</s>"});
  EXPECT_THAT(chat, IsOk());
  return *std::move(chat);
}

std::unique_ptr<const ChatTemplate> BuiltIn(std::string_view name) {
  return Create(*BuiltInChatTemplate(name));
}

ChatInput Input(const char* messages) {
  return {.messages = Json::parse(messages), .now = absl::UnixEpoch()};
}

constexpr char kHello[] = R"([{"role": "user", "content": "Hello"}])";
constexpr char kDialogue[] = R"([{"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"},
  {"role": "user", "content": "Bye"}])";
constexpr char kTools[] = R"([{"type": "function", "function": {"name": "add"}}])";

TEST(ChatTemplateTest, BuiltInsWriteTheirFamilysConversation) {
  EXPECT_EQ(*BuiltIn("chatml")->Render(Input(kDialogue)),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(*BuiltIn("llama3")->Render(Input(kHello)),
            "<s><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(*BuiltIn("llama2")->Render(Input(kDialogue)),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(*BuiltIn("zephyr")->Render(Input(kHello)), "<|user|>\nHello</s>\n<|assistant|>\n");
}

TEST(ChatTemplateTest, EveryBuiltInParsesAndShowsAConversation) {
  for (const std::string_view name : BuiltInChatTemplateNames()) {
    EXPECT_THAT(*BuiltIn(name)->Render(Input(kDialogue)),
                AllOf(HasSubstr("Be brief."), HasSubstr("Yes?"), HasSubstr("Bye")))
        << name;
  }
}

TEST(ChatTemplateTest, AnUnknownBuiltInIsRefusedWithTheNamesThereAre) {
  EXPECT_THAT(BuiltInChatTemplate("nope"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(BuiltInChatTemplate("nope"),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("chatml, gemma, llama2, llama3, mistral, zephyr")));
}

TEST(ChatTemplateTest, ASystemMessageGoesIntoTheUserTurnWhereThereIsNoRoleForIt) {
  const auto gemma = BuiltIn("gemma");
  EXPECT_FALSE(gemma->caps().system_role);
  EXPECT_EQ(*gemma->Render(Input(R"([{"role": "developer", "content": "Be brief."},
                                     {"role": "user", "content": "Hi"}])")),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
}

TEST(ChatTemplateTest, DeveloperIsSystem) {
  EXPECT_THAT(*BuiltIn("chatml")->Render(Input(R"([{"role": "developer", "content": "x"}])")),
              HasSubstr("<|im_start|>system\nx"));
}

TEST(ChatTemplateTest, ContentMayBeTextPartsNullOrAbsent) {
  const auto chat = BuiltIn("chatml");
  const std::string plain = *chat->Render(Input(R"([{"role": "user", "content": "ab"}])"));
  EXPECT_EQ(*chat->Render(Input(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                     {"type": "text", "text": "b"}]}])")),
            plain);
  EXPECT_EQ(*chat->Render(Input(R"([{"role": "user", "content": null}])")),
            *chat->Render(Input(R"([{"role": "user"}])")));
  EXPECT_THAT(chat->Render(Input(R"([{"role": "user", "content": [{"type": "image_url"}]}])")),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("messages[0].content may hold text parts only")));
}

TEST(ChatTemplateTest, ATemplateThatReadsPartsGetsParts) {
  const auto chat =
      Create("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}");
  EXPECT_TRUE(chat->caps().takes_parts);
  EXPECT_EQ(*chat->Render(Input(kHello)), "Hello");
}

TEST(ChatTemplateTest, CapsAreFoundByShowing) {
  const ChatTemplateCaps tooled = Create(kTooled)->caps();
  EXPECT_TRUE(tooled.system_role && tooled.tools && tooled.tool_calls && tooled.tool_results);
  EXPECT_TRUE(tooled.object_arguments && tooled.generation_prompt);
  EXPECT_FALSE(tooled.takes_parts);
  const ChatTemplateCaps plain = BuiltIn("chatml")->caps();
  EXPECT_TRUE(plain.system_role && plain.generation_prompt);
  EXPECT_FALSE(plain.tools || plain.tool_calls || plain.object_arguments);
}

TEST(ChatTemplateTest, ArgumentsOfCallsComeAsTheTemplateWantsThem) {
  const char* const messages = R"([{"role": "user", "content": "1+2"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
       "function": {"name": "add", "arguments": "{\"a\": 1, \"b\": [2]}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "3"}])";
  ChatInput input = Input(messages);
  input.tools = Json::parse(kTools);
  EXPECT_THAT(*Create(kTooled)->Render(input),
              AllOf(HasSubstr(R"((add{"a": 1, "b": [2]}))"), HasSubstr("<tool>3"),
                    HasSubstr(R"([{"type": "function", "function": {"name": "add"}}])")));
  // One that joins texts cannot take an object.
  const auto texts = Create(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}{{ tools }}");
  EXPECT_FALSE(texts->caps().object_arguments);
  EXPECT_TRUE(texts->caps().tool_calls);
  EXPECT_THAT(*texts->Render(input), HasSubstr(R"(add{"a": 1, "b": [2]})"));
}

TEST(ChatTemplateTest, ArgumentsThatAreNoObjectAreRefused) {
  const char* const messages = R"([{"role": "assistant", "tool_calls": [{"function":
      {"name": "add", "arguments": "not json"}}]}])";
  EXPECT_THAT(Create(kTooled)->Render(Input(messages)), FailsWith(FailureKind::kInvalidRequest));
}

TEST(ChatTemplateTest, ToolsAreRefusedWhereTheTemplateHasNoPlaceForThem) {
  ChatInput input = Input(kHello);
  input.tools = Json::parse(kTools);
  EXPECT_THAT(BuiltIn("chatml")->Render(input),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("no place for tools")));
}

TEST(ChatTemplateTest, ATemplateForToolsServesRequestsWithTools) {
  const auto chat = Create("{{ messages[0].content }}", "T{{ tools[0].function.name }}");
  ChatInput input = Input(kHello);
  EXPECT_EQ(*chat->Render(input), "Hello");
  input.tools = Json::parse(kTools);
  EXPECT_EQ(*chat->Render(input), "Tadd");
}

TEST(ChatTemplateTest, FurtherVariablesReachTheTemplateAndCannotTakeTheNamesOfOurs) {
  const auto chat = Create("{{ enable_thinking }} {{ bos_token }}{{ messages | length }}");
  ChatInput input = Input(kHello);
  input.extra = Json::parse(R"({"enable_thinking": false, "bos_token": "evil"})");
  EXPECT_EQ(*chat->Render(input), "False <s>1");
}

TEST(ChatTemplateTest, AContinuedMessageStaysOpen) {
  ChatInput input = Input(R"([{"role": "user", "content": "Say yes"},
                              {"role": "assistant", "content": "Ye"}])");
  input.continue_final_message = true;
  EXPECT_THAT(*BuiltIn("chatml")->Render(input), EndsWith("<|im_start|>assistant\nYe"));
  input.messages.back()["content"] = "";
  EXPECT_THAT(BuiltIn("chatml")->Render(input), FailsWith(FailureKind::kInvalidRequest));
}

TEST(ChatTemplateTest, EmptyMessagesInTheHistoryStayMessages) {
  EXPECT_THAT(*BuiltIn("chatml")->Render(Input(R"([{"role": "user", "content": "hi"},
                  {"role": "assistant", "content": ""}, {"role": "user", "content": "yes"}])")),
              AllOf(HasSubstr("<|im_start|>assistant\n<|im_end|>\n"), Not(HasSubstr("==="))));
}

TEST(ChatTemplateTest, WhatTheTemplateRaisesReachesTheClientWithItsPlace) {
  const auto chat = Create(
      "{% for m in messages %}{% if m.role == 'tool' %}\n"
      "{{ raise_exception('no tools here') }}{% endif %}{% endfor %}");
  EXPECT_THAT(chat->Render(Input(R"([{"role": "tool", "content": ""}])")),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("chat template, 2:19: no tools here")));
  EXPECT_THAT(ChatTemplate::Create({.source = "{% if %}"}),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("chat template, 1:7:")));
}

TEST(ChatTemplateTest, MessagesOfAnotherShapeAreRefusedByName) {
  const auto chat = BuiltIn("chatml");
  for (const char* messages :
       {"[]", "{}", "3", "[3]", "[{}]", R"([{"role": 3}])", R"([{"role": "user", "content": 3}])",
        R"([{"role": "user", "content": [3]}])", R"([{"role": "user", "content": [{"type": 3}]}])",
        R"([{"role": "assistant", "tool_calls": 3}])",
        R"([{"role": "assistant", "tool_calls": [3]}])",
        R"([{"role": "assistant", "tool_calls": [{"function": 3}]}])"}) {
    EXPECT_THAT(chat->Render(Input(messages)), FailsWith(FailureKind::kInvalidRequest)) << messages;
  }
  ChatInput input = Input(kHello);
  input.extra = 3;
  EXPECT_THAT(chat->Render(input), FailsWith(FailureKind::kInvalidRequest));
}

TEST(ChatTemplateTest, DeepNestingIsRefused) {
  ChatInput input = Input(kHello);
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({std::move(deep)});
  input.extra = {{"x", std::move(deep)}};
  EXPECT_THAT(BuiltIn("chatml")->Render(input),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("nested too deeply")));
}

}  // namespace
}  // namespace shardline
