#pragma once

// Answers of made-up calls: events as the coordinator sends them, and what a client reads of the
// stream.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/gateway/api_answer.h"
#include "gtest/gtest.h"
#include "model/tokenizer/utf8.h"
#include "tests/coordinator/gateway/byte_tokenizer.h"

namespace shardline::testing {

// As the coordinator does: no piece ends inside a character.
class PieceHold {
 public:
  std::string Push(std::string_view bytes) {
    held_ += bytes;
    size_t tail = 0;  // Continuation bytes at the end.
    while (tail < std::min<size_t>(3, held_.size()) &&
           (held_[held_.size() - 1 - tail] & 0xC0) == 0x80) {
      ++tail;
    }
    const bool has_lead = tail < held_.size();
    const size_t kept =
        has_lead && Utf8ClaimedBytes(held_[held_.size() - 1 - tail]) > tail + 1 ? tail + 1 : 0;
    std::string out = held_.substr(0, held_.size() - kept);
    held_.erase(0, out.size());
    return out;
  }
  std::string Flush() { return std::exchange(held_, ""); }

 private:
  std::string held_;
};

// The events of one call: each piece of text is a token that adds it.
class CallEvents {
 public:
  explicit CallEvents(uint32_t prompt_tokens = 5) : prompt_tokens_(prompt_tokens) {
    v1::GenerateStarted& started = *Add().mutable_started();
    started.set_plan_epoch(3);
    started.set_prompt_tokens(prompt_tokens);
  }

  CallEvents& Progress(uint32_t done) {
    v1::GenerateProgress& progress = *Add().mutable_progress();
    progress.set_prompt_tokens_done(done);
    progress.set_prompt_tokens(prompt_tokens_);
    return *this;
  }

  // A token for every byte, as a byte-level tokenizer may have it.
  CallEvents& Bytes(std::string_view bytes) {
    for (const int32_t id : ByteTokens(bytes)) {
      const char byte = static_cast<char>(id);
      Token(id, hold_.Push(std::string_view(&byte, 1)));
    }
    return *this;
  }

  // Its id is that of the text's first byte.
  CallEvents& Text(const std::string& piece) {
    return Token(static_cast<uint8_t>(piece[0]), hold_.Push(piece));
  }

  CallEvents& Token(int32_t id, std::string text) {
    v1::GenerateToken& token = *Add().mutable_token();
    token.mutable_token()->set_index(tokens_++);
    token.mutable_token()->set_token(id);
    token.set_text(std::move(text));
    return *this;
  }

  v1::RunToken& last_token() { return *events_.back().mutable_token()->mutable_token(); }

  CallEvents& End(v1::FinishReason reason = v1::FINISH_REASON_STOP) {
    const std::string rest = hold_.Flush();
    v1::GenerateEnd& end = *Add().mutable_end();
    end.set_reason(reason);
    end.set_text(rest);
    end.set_prompt_tokens(prompt_tokens_);
    end.set_generated_tokens(tokens_);
    end.set_cached_tokens(2);
    end.mutable_timings()->set_prefill_us(1500);
    end.mutable_timings()->set_decode_us(1'000'000);
    return *this;
  }

  const std::vector<v1::GenerateEvent>& events() const { return events_; }

 private:
  v1::GenerateEvent& Add() { return events_.emplace_back(); }

  const uint32_t prompt_tokens_;
  uint32_t tokens_ = 0;
  PieceHold hold_;
  std::vector<v1::GenerateEvent> events_;
};

// One request and its answer.
class AnswerRig {
 public:
  AnswerRig(ApiKind kind, const std::string& fields, ToolFormat format = ToolFormat::kNone)
      : tokenizer_(MakeByteTokenizer()) {
    const char* what = kind == ApiKind::kChat ? R"("messages":[{"role":"user","content":"hi"}])"
                                              : R"("prompt":["Say","Tell"])";
    const std::string body = "{" +
                             (fields.find("\"prompt\"") == std::string::npos
                                  ? what + std::string(fields.empty() ? "" : ",")
                                  : "") +
                             fields + "}";
    ApiResult<ApiCall> call = ParseApiCall(kind, body, {});
    EXPECT_TRUE(call.ok()) << call.error().message;
    call_ = *std::move(call);
    for (const ApiPrompt& prompt : call_.prompts) {
      prepared_.prompts.push_back({.text = std::get<std::string>(prompt)});
    }
    if (prepared_.prompts.empty()) prepared_.prompts.resize(1);
    prepared_.requests.resize(prepared_.prompts.size() * static_cast<size_t>(call_.n));
    prepared_.tool_format = format;
    answer_ = std::make_unique<ApiAnswer>(AnswerFacts{.id = "id-1",
                                                      .created_unix_s = 1'700'000'000,
                                                      .model = "m",
                                                      .weights_digest = "abcd",
                                                      .tokenizer = tokenizer_.get()},
                                          call_, prepared_);
  }

  std::string Feed(size_t choice, const v1::GenerateEvent& event) {
    elapsed_ += absl::Milliseconds(10);
    std::string out = answer_->OnEvent(choice, event, elapsed_);
    stream_ += out;
    return out;
  }
  void Feed(size_t choice, const CallEvents& call) {
    for (const v1::GenerateEvent& event : call.events()) Feed(choice, event);
  }

  ApiAnswer& answer() { return *answer_; }

  // The data lines of the whole stream, tail included, less "[DONE]".
  std::vector<Json> Chunks() {
    const std::string all = stream_ + answer_->Tail();
    std::vector<Json> chunks;
    bool done = false;
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find("\n\n", at);
      EXPECT_NE(end, std::string::npos);
      const std::string line = all.substr(at, end - at);
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos);
      EXPECT_FALSE(done);
      done = line == "data: [DONE]";
      if (!done) chunks.push_back(Json::parse(line.substr(6)));
      at = end + 2;
    }
    EXPECT_TRUE(done);
    return chunks;
  }

  Json Whole() { return Json::parse(answer_->Body()); }

 private:
  const std::unique_ptr<const Tokenizer> tokenizer_;
  ApiCall call_;
  PreparedCall prepared_;
  std::unique_ptr<ApiAnswer> answer_;
  absl::Duration elapsed_;
  std::string stream_;
};

// What a client makes of a stream's chunks for one choice: the text, tool calls as
// "name(arguments)", and the finish reason.
struct Heard {
  std::string text;
  std::vector<std::string> calls;
  std::string finish_reason;
  int roles = 0;
  std::vector<Json> logprobs;
};

inline Heard Listen(const std::vector<Json>& chunks, int index) {
  Heard heard;
  for (const Json& chunk : chunks) {
    for (const Json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      EXPECT_EQ(heard.finish_reason, "") << "something follows the end: " << chunk;
      if (choice.contains("text")) heard.text += choice["text"].get<std::string>();
      const Json delta = choice.value("delta", Json::object());
      if (delta.contains("role")) ++heard.roles;
      if (delta.contains("content")) heard.text += delta["content"].get<std::string>();
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        const auto at = call["index"].get<size_t>();
        EXPECT_LE(at, heard.calls.size());
        EXPECT_EQ(call.contains("id"), at == heard.calls.size()) << "id and name come once";
        EXPECT_EQ(call["function"].contains("name"), call.contains("id"));
        if (call.contains("id")) {
          heard.calls.push_back(call["function"]["name"].get<std::string>() + "(");
        }
        heard.calls[at] += call["function"]["arguments"].get<std::string>();
      }
      if (!choice["logprobs"].is_null()) heard.logprobs.push_back(choice["logprobs"]);
      if (!choice["finish_reason"].is_null()) {
        heard.finish_reason = choice["finish_reason"].get<std::string>();
        EXPECT_TRUE(delta.empty());
      }
    }
  }
  for (std::string& call : heard.calls) call += ")";
  return heard;
}

}  // namespace shardline::testing
