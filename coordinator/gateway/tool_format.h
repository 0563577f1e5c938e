#pragma once

// How a model writes its tool calls, and what is said to one whose template knows none.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/api_request.h"

namespace shardline {

enum class ToolFormat {
  kNone,     // No calls are looked for.
  kHermes,   // <tool_call>{"name": …, "arguments": {…}}</tool_call>, each call its own.
  kMistral,  // [TOOL_CALLS][{"name": …, "arguments": {…}}, …]
  kLlama3,   // The whole answer is {"name": …, "parameters": {…}}; one call.
  kGeneric,  // As kHermes, but the template knows no tools: a system note tells of them.
};

// By the words of the template. `shows_tools`: a conversation with tools renders differently.
ToolFormat ToolFormatOf(std::string_view template_source, bool shows_tools);

// What marks the beginning and the end of a call in the text; empty where nothing does.
std::string_view ToolCallMark(ToolFormat format);
std::string_view ToolCallEndMark(ToolFormat format);
// The name of a call's arguments: "arguments", or "parameters" for kLlama3.
std::string_view ArgumentsKey(ToolFormat format);

// An id for call `index` of choice `choice`, as the format's templates take them: kMistral's are
// nine letters or digits. Equal arguments give equal ids.
std::string ToolCallId(ToolFormat format, uint64_t key, size_t choice, int index);

// For a template that shows no tools, or no calls: the messages with a note that describes the
// tools (if any may be called), and with calls and their results as text.
Json MessagesWithToolText(const Json& messages, const ToolWish& tool);

}  // namespace shardline
