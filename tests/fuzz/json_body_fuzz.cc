// Feeds the HTTP API any body, as a chat or a completion (by the first byte), all the way to the
// calls behind it.
//
// Nothing breaks; an error is one a client can read; what is taken keeps its promises.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "coordinator/gateway/api_prompt.h"
#include "coordinator/gateway/api_request.h"
#include "tests/coordinator/gateway/byte_tokenizer.h"

namespace shardline {
namespace {

constexpr int32_t kContext = 4096;

void CheckError(const ApiError& error) {
  SL_CHECK(error.status == 400 || error.status == 413, error.message);
  SL_CHECK(!error.message.empty());
  const ApiResult<Json> body = ParseJson(ErrorBody(error));
  SL_CHECK(body.ok(), ErrorBody(error));
  SL_CHECK((*body)["error"]["message"].is_string());
}

void CheckCall(const ApiCall& call) {
  SL_CHECK(call.n >= 1 && call.n <= ApiLimits{}.choices_max);
  SL_CHECK(call.stop_texts.size() <= 4);
  for (const std::string& stop : call.stop_texts) SL_CHECK(!stop.empty());
  SL_CHECK(call.sampling.top_p() > 0);
  SL_CHECK(call.sampling.repetition_penalty() > 0);
  SL_CHECK(call.tool.mode == ToolMode::kNone || !call.tool.tools.empty());
  SL_CHECK(call.tool.tools.is_null() || call.tool.tools.size() == call.tool.strict.size());
  SL_CHECK(!call.prompts.empty() || !call.messages.empty());
  for (const Json& message : call.messages) {
    SL_CHECK(message["role"].is_string());
    SL_CHECK(message["content"].is_string() || message.contains("tool_calls"));
  }
}

void CheckPrepared(const ApiCall& call, const Tokenizer& tokenizer) {
  const ApiModel model{.name = "m", .tokenizer = &tokenizer, .context_tokens_max = kContext};
  const ApiResult<PreparedCall> prepared = PrepareCall(call, model, {});
  if (!prepared.ok()) return CheckError(prepared.error());
  SL_CHECK(prepared->requests.size() == call.prompts.size() * static_cast<size_t>(call.n));
  for (const v1::GenerateRequest& request : prepared->requests) {
    const auto prompt = static_cast<uint32_t>(request.tokens().ids_size());
    SL_CHECK(prompt >= 1 && request.new_tokens_max() >= 1);
    SL_CHECK(prompt + request.new_tokens_max() <= static_cast<uint32_t>(kContext));
  }
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardline;  // NOLINT: the entry point must be global.
  if (size == 0) return 0;
  static const Tokenizer* const tokenizer = testing::MakeByteTokenizer().release();
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ApiKind kind = data[0] % 2 == 0 ? ApiKind::kCompletion : ApiKind::kChat;
  const ApiResult<ApiCall> call = ParseApiCall(kind, body, {});
  if (!call.ok()) {
    CheckError(call.error());
    return 0;
  }
  CheckCall(*call);
  if (kind == ApiKind::kCompletion) CheckPrepared(*call, *tokenizer);
  return 0;
}
