#pragma once

// What a client of /v1/chat/completions or /v1/completions asks for, checked as far as the body
// alone tells.
//
// Spellings and ranges are OpenAI's; extensions are taken as vLLM and as llama-server spell them,
// and mean "off" when absent. A field that is unknown, or known and without effect here, is taken
// and named in `ignored`; one whose neglect would change the answer's meaning is refused.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/api_json.h"
#include "shardline/v1/head.pb.h"

namespace shardline {

enum class ApiKind { kChat, kCompletion };

struct ApiLimits {
  int choices_max = 8;  // n; and prompts x n.
  uint32_t new_tokens_max = 1 << 20;
  size_t stop_bytes_max = 1024;  // Of one stop text.
  size_t grammar_bytes_max = 256 * 1024;
  size_t tools_max = 128;
};

// Text, or token ids.
using ApiPrompt = std::variant<std::string, std::vector<int32_t>>;

enum class ToolMode { kNone, kAuto, kRequired, kNamed };

struct ToolWish {
  ToolMode mode = ToolMode::kNone;
  Json tools;                // [{"type":"function","function":{…}}]; null without tools.
  std::vector<bool> strict;  // [tools]: the arguments' schema must be held.
  std::string named;         // With kNamed.
  bool is_parallel = true;   // More than one call may be made.
};

// What the text must look like; at most one is given.
struct FormatWish {
  bool json_object = false;
  std::optional<Json> schema;
  std::string grammar;  // GBNF.
  std::string param;    // The field that asked: "response_format.json_schema.schema".
  bool any() const { return json_object || schema || !grammar.empty(); }
};

struct ApiCall {
  ApiKind kind = ApiKind::kChat;
  std::string model;  // Empty: not named.
  int n = 1;

  // Chat. Roles are known, "developer" is "system", content is a string or null.
  Json messages;
  ToolWish tool;
  FormatWish format;
  Json template_extra;  // Object: chat_template_kwargs, and reasoning_effort.
  bool add_generation_prompt = true;
  bool continue_final_message = false;

  // Completion.
  std::vector<ApiPrompt> prompts;  // At least one; none is empty.
  bool echo = false;

  std::optional<uint32_t> new_tokens_max;  // At least one.
  uint32_t new_tokens_min = 0;
  v1::Sampling sampling;  // Without seed. Ids are not yet checked against a vocabulary.
  std::optional<uint64_t> seed;
  std::vector<std::string> stop_texts;  // None is empty.
  bool include_stop_text = false;
  std::vector<int32_t> stop_tokens;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::optional<uint32_t> truncate_prompt_tokens;
  int64_t deadline_ms = 0;  // 0: the coordinator's default.
  bool cache_prompt = true;
  std::string cache_salt;  // Shares cached prefixes only with the same.
  std::string request_id;  // The client's own name for it.

  // Of the answer.
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool tokens_as_ids = false;
  bool return_progress = false;
  bool timings = false;            // In the last chunk, or the whole answer.
  bool timings_per_token = false;  // In every chunk.

  std::vector<std::string> ignored;  // At most 16 names of at most 64 bytes.
};

// The whole way from a body. Errors are 400 (413 for one past its limit) and name the field.
ApiResult<ApiCall> ParseApiCall(ApiKind kind, std::string_view body, const ApiLimits& limits);

// As above, of what was read already. REQUIRES: body.is_object().
ApiResult<ApiCall> ReadApiCall(ApiKind kind, const Json& body, const ApiLimits& limits);

}  // namespace shardline
