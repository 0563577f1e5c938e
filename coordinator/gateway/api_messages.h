#pragma once

// The conversation and the tools of a chat request, checked and put into the one shape that
// templates get. `error` is the one that the reader of the body shares (api_json.h).

#include <optional>

#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/api_request.h"

namespace shardline {

// `messages` with roles system, user, assistant and tool; content as a string (parts of text
// joined) or, beside tool calls, null; tool calls with id, type and JSON text as arguments.
// Anything but text is refused, naming the part: "messages[1].content[0]".
Json ReadMessages(JsonFields& body, std::optional<ApiError>* error);

// tools, tool_choice and parallel_tool_calls.
ToolWish ReadTools(JsonFields& body, const ApiLimits& limits, std::optional<ApiError>* error);

}  // namespace shardline
