#pragma once

// The endpoints beside generation that look at text with a model's eyes: tokens of a text or a
// conversation and back, the rendered template, what a model is. Pure; bodies are spelled as vLLM
// and as llama-server spell them, and answers hold what either looks for.

#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/gateway_models.h"

namespace shardline {

// The body's `model`, or empty; 400 for a body that is no object.
ApiResult<std::string> ModelNamed(const Json& body);

// {"prompt" or "messages", "model"} -> {"count", "max_model_len", "tokens"}, or
// {"content", "add_special", "parse_special", "with_pieces"} -> {"tokens"}.
ApiResult<Json> Tokenize(const Json& body, const GatewayModel& model, absl::Time now);
// {"tokens"} -> {"prompt", "content"}.
ApiResult<Json> Detokenize(const Json& body, const GatewayModel& model);
// {"messages", …} -> {"prompt"}.
ApiResult<Json> ApplyTemplate(const Json& body, const GatewayModel& model, absl::Time now);

Json ModelList(const std::vector<GatewayModel>& models);
Json ModelEntry(const GatewayModel& model);
// llama-server's /props: template, context, build.
Json Props(const GatewayModel& model);

}  // namespace shardline
