#pragma once

// The log-probabilities of a generated token, as the API's two endpoints write them.
//
// Numbers are always JSON numbers: what is unlikely beyond kLogprobMin, or no number, is that.

#include "coordinator/gateway/api_json.h"
#include "model/tokenizer/tokenizer.h"
#include "shardline/v1/head.pb.h"

namespace shardline {

inline constexpr double kLogprobMin = -9999.0;

struct LogprobStyle {
  const Tokenizer* tokenizer = nullptr;
  bool tokens_as_ids = false;  // "token_id:17" in place of the token's text.
  bool shows_control = false;  // Control tokens are part of the text.
};

// {"token", "logprob", "bytes", "top_logprobs"}. The bytes of all tokens join to the text; a token
// that is not in the text has null.
Json ChatLogprob(const v1::RunToken& token, const LogprobStyle& style);

// The columns of a completion: "tokens", "token_logprobs", "top_logprobs", "text_offset".
Json EmptyCompletionLogprobs();
// Adds a row. `text_offset`: code points of the answer before it.
void AddCompletionLogprob(const v1::RunToken& token, const LogprobStyle& style, size_t text_offset,
                          Json* columns);

}  // namespace shardline
