#pragma once

// The rules that the head holds the text to: grammar, stop texts, a minimum of tokens.

#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/tool_format.h"
#include "shardline/v1/head.pb.h"

namespace shardline {

// 400 naming the field for a grammar that does not parse (with its position), or a schema with a
// keyword that cannot be held (with its name and place).
ApiResult<v1::TextRules> RulesOf(const ApiCall& call, ToolFormat format);

}  // namespace shardline
