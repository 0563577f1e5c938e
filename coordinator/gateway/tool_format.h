#pragma once

// How a model writes its tool calls, and what is said to one whose template knows none.

#include <string>
#include <string_view>

#include "coordinator/gateway/api_error.h"
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

// What marks the beginning of a call in the text; empty for kLlama3 and kNone.
std::string_view ToolCallMark(ToolFormat format);
// The name of a call's arguments: "arguments", or "parameters" for kLlama3.
std::string_view ArgumentsKey(ToolFormat format);

// For kGeneric: the messages with a note that describes the tools, and calls and their results
// as text, for a template that shows neither.
Json MessagesWithToolNote(const Json& messages, const ToolWish& tool);

// GBNF of what follows the mark (kAuto) or of the whole answer (kRequired, kNamed): one call or
// more, each of a known tool with arguments by its schema. 400 naming the tool whose schema has a
// keyword that cannot be held.
ApiResult<std::string> ToolGrammar(const ToolWish& tool, ToolFormat format);

}  // namespace shardline
