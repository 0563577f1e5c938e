#pragma once

// From what a client asks for, and a model, to the calls that generate it: one a choice.
//
// Whatever can be refused is refused here, before anything runs. Takes time proportional to the
// text; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/tool_format.h"
#include "model/tokenizer/tokenizer.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

class ChatTemplate;

// All outlive what is made of them.
struct ApiModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // Null: the model has none; chat is refused.
  int32_t context_tokens_max = 0;               // Prompt and answer together.
};

// What differs from one arrival to the next; passed in so that the same call gives the same bytes.
struct ApiArrival {
  uint64_t seed = 0;  // For a client that names none.
  absl::Time now;     // What a template takes for the hour.
};

struct PreparedPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // As a client with `echo` gets it back.
};

struct PreparedCall {
  std::vector<PreparedPrompt> prompts;
  // [prompts x n] in the order of the choices' indexes. Idempotency key, tenant and reattach are
  // the caller's to add.
  std::vector<v1::GenerateRequest> requests;
  ToolFormat tool_format =
      ToolFormat::kNone;  // Of a chat with tools that may be called; kNone else.
};

ApiResult<PreparedCall> PrepareCall(const ApiCall& call, const ApiModel& model,
                                    const ApiArrival& arrival);

// What /apply-template shows, and what PrepareCall tokenizes. REQUIRES: call.kind == kChat.
ApiResult<std::string> RenderChat(const ApiCall& call, const ApiModel& model,
                                  const ApiArrival& arrival);

// The ids of a rendered conversation. BOS is put in front if the model wants one and the template
// did not write it.
ApiResult<std::vector<int32_t>> TokensOfChat(std::string_view text, const ApiModel& model);

}  // namespace shardline
