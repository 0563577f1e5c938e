#pragma once

// What a client is told of its request, made of the events of the calls behind it: chunks of a
// stream as they come, or one whole answer at the end.
//
// Sans-IO. One object a request; its choices' events may interleave, each choice's come in order.
// The text of the stream is the text of the whole answer. Nothing is told before a choice's first
// token, end or (if asked for) progress, so a failure before can still have a status of its own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/gateway/api_prompt.h"
#include "coordinator/gateway/api_request.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

class AnswerChoice;

struct AnswerFacts {
  std::string id;  // "chatcmpl-…" or "cmpl-…".
  int64_t created_unix_s = 0;
  std::string model;
  std::string weights_digest;  // The end of system_fingerprint; its begin is the plan's epoch.
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
  // REQUIRES: choice < choices.
  std::string OnEvent(size_t choice, const v1::GenerateEvent& event, absl::Duration elapsed);

  // Every choice has ended.
  bool complete() const;
  // The end of a stream: usage, if asked for, and "[DONE]". REQUIRES: complete().
  std::string Tail() const;
  // The whole answer. REQUIRES: complete().
  std::string Body() const;

 private:
  Json Envelope() const;
  std::string Chunk(Json choice) const;
  Json Usage() const;

  const AnswerFacts facts_;
  const ApiCall& call_;
  const PreparedCall& prepared_;
  std::string fingerprint_;
  std::vector<std::unique_ptr<AnswerChoice>> choices_;
};

}  // namespace shardline
