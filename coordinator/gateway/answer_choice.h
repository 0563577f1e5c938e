#pragma once

// One choice of an answer: its tokens become text and tool calls, which are kept for the whole
// answer, and handed out part by part for the stream. Log-probabilities go one way only: they are
// many times larger than the text.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/gateway/api_logprobs.h"
#include "coordinator/gateway/api_prompt.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/stop_hold.h"
#include "coordinator/gateway/tool_stream.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

class AnswerChoice {
 public:
  // Something new to tell. The last has a finish_reason, and nothing follows it.
  struct Part {
    Json delta;          // Of a chat: "delta" of its chunk. Of a completion: its text.
    Json logprobs;       // Null, or those of the tokens since the part before.
    Json finish_reason;  // Null, or a text.
  };

  // `call`, `prepared` and the tokenizer outlive this. Tool calls' ids come from `call_id_key`.
  AnswerChoice(size_t index, uint64_t call_id_key, const Tokenizer* tokenizer, const ApiCall& call,
               const PreparedCall& prepared);

  // The first parts of a choice: a chat's role, a completion's echo. Once, before all others.
  std::vector<Part> Open();
  std::vector<Part> OnToken(const v1::GenerateToken& token);
  std::vector<Part> OnEnd(const v1::GenerateEnd& end);

  bool opened() const { return opened_; }
  bool ended() const { return end_.has_value(); }
  const v1::GenerateEnd& end() const { return *end_; }  // REQUIRES: ended().
  uint32_t tokens() const { return tokens_; }

  // As in a whole answer. REQUIRES: ended().
  Json Whole() const;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };

  bool is_chat() const { return call_.kind == ApiKind::kChat; }
  std::string TextOf(const v1::GenerateToken& token) const;
  void AddText(std::string text, std::vector<Part>* parts);
  void AddEvents(std::vector<ToolEvent> events, std::vector<Part>* parts);
  void AddLogprob(const v1::RunToken& token);
  std::string FinishReason() const;

  // Constant after construction.
  const size_t index_;
  const uint64_t call_id_key_;
  const ApiCall& call_;
  const PreparedCall& prepared_;
  const Tokenizer* const tokenizer_;
  const LogprobStyle style_;

  StopHold hold_;
  std::optional<ToolStream> tools_;
  bool opened_ = false;
  uint32_t tokens_ = 0;
  size_t text_length_ = 0;  // Code points of all tokens so far, stop texts included.
  std::string text_;
  std::vector<Call> calls_;
  Json logprobs_;  // Null, or those of the tokens that no part has told: of all, without a stream.
  std::optional<v1::GenerateEnd> end_;
};

}  // namespace shardline
