#include "coordinator/gateway/tool_stream.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

// The events with what belongs together joined: "text|f{args}|g{args}|text".
std::string Joined(const std::vector<ToolEvent>& events) {
  std::string out;
  ToolEvent::Kind before = ToolEvent::Kind::kArguments;
  for (const ToolEvent& event : events) {
    const bool goes_on = event.kind == before && event.kind == ToolEvent::Kind::kText;
    if (event.kind != ToolEvent::Kind::kArguments && !goes_on && !out.empty()) out += '|';
    if (event.kind == ToolEvent::Kind::kCall) out += std::to_string(event.index) + ":";
    out += event.text;
    before = event.kind;
  }
  return out;
}

std::vector<ToolEvent> Events(ToolFormat format, const std::vector<std::string>& pieces) {
  ToolStream stream(format, {"f", "get_weather"});
  std::vector<ToolEvent> all;
  const auto add = [&all](std::vector<ToolEvent> events) {
    all.insert(all.end(), events.begin(), events.end());
  };
  for (const std::string& piece : pieces) add(stream.Push(piece));
  add(stream.Flush());
  return all;
}

std::string Read(ToolFormat format, const std::string& text) {
  return Joined(Events(format, {text}));
}

struct Sample {
  ToolFormat format;
  std::string text;
  std::string expected;
};

const std::vector<Sample>& Samples() {
  static const auto* const samples = new std::vector<Sample>{
      {ToolFormat::kHermes, "just text\n", "just text\n"},
      {ToolFormat::kHermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)",
       R"(0:f{"a": 1})"},
      {ToolFormat::kHermes,
       "Let me see.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"}]\\\"{\"}}\n"
       "</tool_call>\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{}}\n</tool_call>\n",
       R"(Let me see.|0:f{"s": "}]\"{"}|1:get_weather{})"},
      {ToolFormat::kHermes, "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>"},
      {ToolFormat::kHermes, "a <tool_call> is a tag", "a <tool_call> is a tag"},
      {ToolFormat::kHermes, "a <tool_ca", "a <tool_ca"},
      {ToolFormat::kHermes, "x <tool_call>{\"name\": \"f", "x <tool_call>{\"name\": \"f"},
      {ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2",
       "0:f{\"a\": [1, 2"},
      {ToolFormat::kHermes, "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>",
       "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>"},
      {ToolFormat::kHermes,
       "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> and \u00E9 then",
       "0:f{}|and \u00E9 then"},
      {ToolFormat::kMistral,
       R"([TOOL_CALLS][{"name": "f", "arguments": {"a": [1]}}, {"name": "f", "arguments": {}}])",
       R"(0:f{"a": [1]}|1:f{})"},
      {ToolFormat::kMistral, "no calls [TOOL", "no calls [TOOL"},
      {ToolFormat::kLlama3, R"({"name": "get_weather", "parameters": {"city": "Oslo"}})",
       R"(0:get_weather{"city": "Oslo"})"},
      {ToolFormat::kLlama3, R"( <|python_tag|>{"type": "function", "name": "f", "parameters": {}})",
       "0:f{}"},
      {ToolFormat::kLlama3, R"({"answer": 42})", R"({"answer": 42})"},
      {ToolFormat::kLlama3, "  Hello {\"name\": \"f\"}", "  Hello {\"name\": \"f\"}"},
      {ToolFormat::kLlama3, "<|python", "<|python"},
      {ToolFormat::kGeneric, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)", "0:f{}"},
  };
  return *samples;
}

TEST(ToolStream, TextAndCallsAreToldApart) {
  for (const Sample& sample : Samples()) {
    EXPECT_EQ(Read(sample.format, sample.text), sample.expected) << sample.text;
  }
}

TEST(ToolStream, AnyCutGivesTheSameTextCallsAndArguments) {
  std::mt19937 random(11);
  for (const Sample& sample : Samples()) {
    for (int round = 0; round < 300; ++round) {
      std::vector<std::string> pieces(1);
      for (const char c : sample.text) {
        // Only between characters, as pieces of valid UTF-8 are cut.
        if ((c & 0xC0) != 0x80 && (round == 0 || random() % 3 == 0)) pieces.emplace_back();
        pieces.back() += c;
      }
      ASSERT_EQ(Joined(Events(sample.format, pieces)), sample.expected) << sample.text;
    }
  }
}

TEST(ToolStream, ArgumentsComeAsTheyAreWritten) {
  ToolStream stream(ToolFormat::kHermes, {"f"});
  EXPECT_TRUE(stream.Push("<tool_call>{\"name\": \"f\", ").empty());
  const std::vector<ToolEvent> begun = stream.Push("\"arguments\": {\"a");
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0], (ToolEvent{.kind = ToolEvent::Kind::kCall, .text = "f"}));
  EXPECT_EQ(begun[1], (ToolEvent{.kind = ToolEvent::Kind::kArguments, .text = "{\"a"}));
  const std::vector<ToolEvent> more = stream.Push("\": 1}}");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].text, "\": 1}");
  EXPECT_EQ(stream.calls(), 1);
}

TEST(ToolStream, AHeadThatNeverEndsIsText) {
  const std::string text = "<tool_call>{\"name\": \"" + std::string(100'000, 'x');
  for (const size_t size : {1000u, 7u, 200'000u}) {
    ToolStream stream(ToolFormat::kHermes, {"f"});
    std::string out;
    for (size_t at = 0; at < text.size(); at += size) {
      for (const ToolEvent& event : stream.Push(text.substr(at, size))) out += event.text;
    }
    EXPECT_GT(out.size(), 90'000u);
    for (const ToolEvent& event : stream.Flush()) out += event.text;
    EXPECT_EQ(out, text);
  }
}

TEST(ToolStream, AHeadThatIsTooLongIsTextHoweverItIsCut) {
  const std::string text = "<tool_call>{\"x\": \"" + std::string(5000, 'x') +
                           "\", \"name\": \"f\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(Read(ToolFormat::kHermes, text), text);
  EXPECT_EQ(Joined(Events(ToolFormat::kHermes, {text.substr(0, 4990), text.substr(4990)})), text);
}

TEST(ToolFormat, TheWordsOfATemplateTellItsFormat) {
  EXPECT_EQ(ToolFormatOf("{{ '<tool_call>' }}", true), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf("[AVAILABLE_TOOLS] [TOOL_CALLS]", true), ToolFormat::kMistral);
  EXPECT_EQ(ToolFormatOf("<|start_header_id|>{\"name\": \"parameters\"}", true),
            ToolFormat::kLlama3);
  EXPECT_EQ(ToolFormatOf("<|im_start|>", false), ToolFormat::kGeneric);
}

TEST(ToolFormat, IdsAreDistinctAndOfTheFormsThatTemplatesTake) {
  absl::flat_hash_set<std::string> ids;
  for (size_t choice = 0; choice < 8; ++choice) {
    for (int index = 0; index < 8; ++index) {
      const std::string id = ToolCallId(ToolFormat::kHermes, 42, choice, index);
      EXPECT_TRUE(id.starts_with("call_"));
      EXPECT_TRUE(ids.insert(id).second);
    }
  }
  EXPECT_THAT(ToolCallId(ToolFormat::kMistral, 1, 0, 0),
              ::testing::MatchesRegex("[a-z0-9][a-z0-9][a-z0-9][a-z0-9][a-z0-9][a-z0-9][a-z0-9]"
                                      "[a-z0-9][a-z0-9]"));
}

TEST(ToolFormat, AModelWithoutToolsIsToldInANoteAndSeesCallsAsText) {
  ToolWish wish;
  wish.mode = ToolMode::kAuto;
  wish.tools = Json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  const Json messages = Json::parse(R"([
      {"role":"system","content":"Be brief."},
      {"role":"user","content":"hi"},
      {"role":"assistant","content":null,"tool_calls":[
          {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
          {"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":"one"},
      {"role":"tool","tool_call_id":"2","content":"two"},
      {"role":"assistant","content":"done"}])");
  const Json out = MessagesWithToolText(messages, wish);
  ASSERT_EQ(out.size(), 5u);
  EXPECT_EQ(out[0]["role"], "system");
  EXPECT_THAT(out[0]["content"].get<std::string>(), ::testing::StartsWith("Be brief.\n\n"));
  EXPECT_THAT(out[0]["content"].get<std::string>(), ::testing::HasSubstr(R"({"name":"f")"));
  EXPECT_EQ(out[2]["content"],
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":1}}</tool_call>\n"
            "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  EXPECT_FALSE(out[2].contains("tool_calls"));
  EXPECT_EQ(out[3]["role"], "user");
  EXPECT_EQ(out[3]["content"],
            "<tool_response>one</tool_response>\n<tool_response>two</tool_response>");
  // What the note teaches is what the stream finds.
  EXPECT_EQ(Read(ToolFormat::kGeneric, out[2]["content"]), R"(0:f{"a":1}|1:f{})");
}

}  // namespace
}  // namespace shardline
