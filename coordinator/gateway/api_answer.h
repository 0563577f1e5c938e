#pragma once

// What a client is told of its request, made of the events of the calls behind it: chunks of a
// stream as they come, or one whole answer at the end.
//
// Sans-IO. One object a request; its choices' events may interleave, each choice's come in order.
// The text of the stream is the text of the whole answer. Nothing is told before a choice's first
// token, end or (if asked for) progress, so a failure before can still have a status of its own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/gateway/answer_choice.h"
#include "coordinator/gateway/api_prompt.h"
#include "coordinator/gateway/api_request.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

struct AnswerFacts {
  std::string id;  // "chatcmpl-…" or "cmpl-…".
  int64_t created_unix_s = 0;
  std::string model;
  std::string weights_digest;  // The end of system_fingerprint; before it stands the plan's epoch.
  uint64_t call_id_key = 0;    // Tool calls' ids are drawn from it.
  const Tokenizer* tokenizer = nullptr;  // Outlives the answer.
};

class ApiAnswer {
 public:
  // `call` and `prepared` outlive this.
  ApiAnswer(AnswerFacts facts, const ApiCall& call, const PreparedCall& prepared);
  ~ApiAnswer();

  // Takes an event of the call behind `choice`; `elapsed` since the request arrived. What to write
  // to a streaming client, perhaps nothing; always nothing when the call does not stream.
  // REQUIRES: choice < prepared.requests.size().
  std::string OnEvent(size_t choice, const v1::GenerateEvent& event, absl::Duration elapsed);

  // Every choice has ended.
  bool complete() const;
  // The end of a stream: usage, if asked for, and "[DONE]". REQUIRES: complete().
  std::string Tail() const;
  // The whole answer. REQUIRES: complete().
  std::string Body() const;

 private:
  struct ChoiceFacts {
    uint32_t prompt_tokens = 0;
    uint32_t cached_tokens = 0;
    std::optional<uint32_t> prompt_cached;  // By the first progress.
    std::optional<absl::Duration> first_token;
    absl::Duration last_token;
  };

  void OnStarted(size_t choice, const v1::GenerateStarted& started);
  std::string OnProgress(size_t choice, const v1::GenerateProgress& progress,
                         absl::Duration elapsed);
  std::string Open(size_t choice);
  std::string Chunks(size_t choice, std::vector<AnswerChoice::Part> parts) const;
  Json Chunk(size_t choice, AnswerChoice::Part part) const;
  Json TimingsSoFar(size_t choice) const;
  Json Envelope(const char* object) const;
  Json Usage() const;
  bool IsChat() const;

  // Constant after construction.
  const AnswerFacts facts_;
  const ApiCall& call_;

  std::string fingerprint_;
  std::vector<std::unique_ptr<AnswerChoice>> choices_;
  std::vector<ChoiceFacts> choice_facts_;  // [choices]
};

}  // namespace shardline
