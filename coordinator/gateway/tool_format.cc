#include "coordinator/gateway/tool_format.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace shardline {
namespace {

constexpr char kCallMark[] = "<tool_call>";
constexpr char kCallEndMark[] = "</tool_call>";
constexpr char kMistralMark[] = "[TOOL_CALLS]";
constexpr char kPythonTag[] = "<|python_tag|>";
constexpr char kLlamaHeader[] = "<|start_header_id|>";

// Mixes all bits of the key into all of the result (the finaliser of SplitMix64).
uint64_t Mixed(uint64_t key) {
  key ^= key >> 30;
  key *= 0xBF58476D1CE4E5B9;
  key ^= key >> 27;
  key *= 0x94D049BB133111EB;
  return key ^ (key >> 31);
}

std::string ToolNote(const ToolWish& tool) {
  std::string note =
      "You can call functions. These are there, one a line, as JSON with name, description and "
      "the schema of the arguments:\n";
  for (const Json& entry : tool.tools) absl::StrAppend(&note, JsonLine(entry["function"]), "\n");
  absl::StrAppend(
      &note, "To call one, write its name and arguments as JSON like this:\n", kCallMark,
      R"({"name": "the_name", "arguments": {"key": "value"}})", kCallEndMark, "\n",
      tool.is_parallel ? "To call several, write several such lines. " : "Call one at a time. ",
      "Results come in the next message, between <tool_response> and </tool_response>.");
  return note;
}

std::string CallsAsText(const Json& message) {
  std::string text;
  if (message["content"].is_string()) text = message["content"].get<std::string>();
  for (const Json& call : message["tool_calls"]) {
    const Json& function = call["function"];
    absl::StrAppend(
        &text, text.empty() ? "" : "\n", kCallMark, "{\"name\": ", JsonLine(function["name"]),
        ", \"arguments\": ", function["arguments"].get<std::string>(), "}", kCallEndMark);
  }
  return text;
}

std::string ResultAsText(const Json& message) {
  return absl::StrCat("<tool_response>", message["content"].get<std::string>(), "</tool_response>");
}

}  // namespace

ToolFormat ToolFormatOf(std::string_view template_source, bool shows_tools) {
  const auto says = [template_source](std::string_view words) {
    return template_source.find(words) != std::string_view::npos;
  };
  if (!shows_tools) return ToolFormat::kGeneric;
  if (says(kMistralMark)) return ToolFormat::kMistral;
  if (says(kCallMark)) return ToolFormat::kHermes;
  if (says(kPythonTag) || says(kLlamaHeader)) return ToolFormat::kLlama3;
  return ToolFormat::kGeneric;
}

std::string_view ToolCallMark(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kGeneric:
      return kCallMark;
    case ToolFormat::kMistral:
      return kMistralMark;
    case ToolFormat::kLlama3:
    case ToolFormat::kNone:
      return "";
  }
  return "";
}

std::string_view ToolCallEndMark(ToolFormat format) {
  return format == ToolFormat::kHermes || format == ToolFormat::kGeneric ? kCallEndMark : "";
}

std::string_view ArgumentsKey(ToolFormat format) {
  return format == ToolFormat::kLlama3 ? "parameters" : "arguments";
}

std::string ToolCallId(ToolFormat format, uint64_t key, size_t choice, int index) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t bits = Mixed(Mixed(key + choice) + static_cast<uint64_t>(index));
  std::string id = format == ToolFormat::kMistral ? "" : "call_";
  const size_t size = id.size() + 9;
  for (; id.size() < size; bits /= kDigits.size()) id += kDigits[bits % kDigits.size()];
  return id;
}

Json MessagesWithToolText(const Json& messages, const ToolWish& tool) {
  Json out = Json::array();
  size_t next = 0;
  if (tool.mode != ToolMode::kNone) {
    std::string note = ToolNote(tool);
    if (messages[0]["role"] == "system") {
      note = absl::StrCat(messages[0]["content"].get<std::string>(), "\n\n", note);
      next = 1;
    }
    out.push_back({{"role", "system"}, {"content", std::move(note)}});
  }
  bool after_result = false;  // Results that follow each other are one message.
  for (; next < messages.size(); ++next) {
    const Json& message = messages[next];
    const bool is_result = message["role"] == "tool";
    if (is_result && after_result) {
      Json& content = out.back()["content"];
      content = absl::StrCat(content.get<std::string>(), "\n", ResultAsText(message));
    } else if (is_result) {
      out.push_back({{"role", "user"}, {"content", ResultAsText(message)}});
    } else if (message.contains("tool_calls")) {
      out.push_back({{"role", "assistant"}, {"content", CallsAsText(message)}});
    } else {
      out.push_back(message);
    }
    after_result = is_result;
  }
  return out;
}

}  // namespace shardline
