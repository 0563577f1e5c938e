#pragma once

// The conversation and the tools of a chat request, checked and put into the one shape that
// templates get.

#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/api_request.h"

namespace shardline {

// `messages` with roles system, user, assistant and tool; content as a string (parts of text
// joined) or, beside tool calls, null; tool calls with id, type and JSON text as arguments.
// Anything but text is refused, naming the part: "messages[1].content[0]".
Json ReadMessages(JsonFields& body);

// tools, tool_choice and parallel_tool_calls.
ToolWish ReadTools(JsonFields& body, const ApiLimits& limits);

}  // namespace shardline
