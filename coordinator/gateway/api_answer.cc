#include "coordinator/gateway/api_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "coordinator/gateway/answer_choice.h"

namespace shardline {
namespace {

std::string Event(const Json& json) { return absl::StrCat("data: ", JsonLine(json), "\n\n"); }

double Milliseconds(int64_t us) { return static_cast<double>(us) / 1000; }

Json TimingsOf(const v1::GenerateEnd& end) {
  const uint32_t predicted = end.generated_tokens();
  const int64_t decode_us = end.timings().decode_us();
  const uint32_t cached = std::min(end.cached_tokens(), end.prompt_tokens());
  // From the first token to the last there is one token less than there are tokens.
  const double per_second =
      predicted > 1 && decode_us > 0 ? (predicted - 1) * 1e6 / static_cast<double>(decode_us) : 0;
  return {{"cache_n", cached},
          {"prompt_n", end.prompt_tokens() - cached},
          {"prompt_ms", Milliseconds(end.timings().prefill_us())},
          {"predicted_n", predicted},
          {"predicted_ms", Milliseconds(decode_us)},
          {"predicted_per_second", per_second}};
}

}  // namespace

ApiAnswer::ApiAnswer(AnswerFacts facts, const ApiCall& call, const PreparedCall& prepared)
    : facts_(std::move(facts)), call_(call) {
  for (size_t i = 0; i < prepared.requests.size(); ++i) {
    choices_.push_back(
        std::make_unique<AnswerChoice>(i, facts_.call_id_key, facts_.tokenizer, call, prepared));
  }
  choice_facts_.resize(choices_.size());
}

ApiAnswer::~ApiAnswer() = default;

std::string ApiAnswer::OnEvent(size_t choice, const v1::GenerateEvent& event,
                               absl::Duration elapsed) {
  SL_CHECK(choice < choices_.size());
  switch (event.event_case()) {
    case v1::GenerateEvent::kStarted:
      OnStarted(choice, event.started());
      return "";
    case v1::GenerateEvent::kProgress:
      return OnProgress(choice, event.progress(), elapsed);
    case v1::GenerateEvent::kToken: {
      ChoiceFacts& facts = choice_facts_[choice];
      if (!facts.first_token) facts.first_token = elapsed;
      facts.last_token = elapsed;
      std::string out = Open(choice);
      out += Chunks(choice, choices_[choice]->OnToken(event.token()));
      return out;
    }
    case v1::GenerateEvent::kEnd: {
      choice_facts_[choice].prompt_tokens = event.end().prompt_tokens();
      choice_facts_[choice].cached_tokens = event.end().cached_tokens();
      std::string out = Open(choice);
      out += Chunks(choice, choices_[choice]->OnEnd(event.end()));
      return out;
    }
    case v1::GenerateEvent::kRestarted:
    case v1::GenerateEvent::EVENT_NOT_SET:
      return "";
  }
  return "";
}

void ApiAnswer::OnStarted(size_t choice, const v1::GenerateStarted& started) {
  choice_facts_[choice].prompt_tokens = started.prompt_tokens();
  // The same for all chunks, so that of the first to start.
  if (fingerprint_.empty()) {
    fingerprint_ = absl::StrCat("sl-", started.plan_epoch(), "-", facts_.weights_digest);
  }
}

std::string ApiAnswer::OnProgress(size_t choice, const v1::GenerateProgress& progress,
                                  absl::Duration elapsed) {
  const bool is_late = choice_facts_[choice].first_token.has_value();
  if (!call_.return_progress || is_late || choices_[choice]->ended()) return "";
  std::string out = Open(choice);
  if (!call_.stream) return out;
  Json chunk = Chunk(choice, {.delta = IsChat() ? Json::object() : Json("")});
  ChoiceFacts& facts = choice_facts_[choice];
  if (!facts.prompt_cached) facts.prompt_cached = progress.prompt_tokens_done();
  chunk["prompt_progress"] = {{"total", progress.prompt_tokens()},
                              {"cache", *facts.prompt_cached},
                              {"processed", progress.prompt_tokens_done()},
                              {"time_ms", absl::ToInt64Milliseconds(elapsed)}};
  return out + Event(chunk);
}

std::string ApiAnswer::Open(size_t choice) {
  if (choices_[choice]->opened()) return "";
  return Chunks(choice, choices_[choice]->Open());
}

std::string ApiAnswer::Chunks(size_t choice, std::vector<AnswerChoice::Part> parts) const {
  std::string out;
  if (!call_.stream) return out;
  for (AnswerChoice::Part& part : parts) {
    const bool is_last = !part.finish_reason.is_null();
    Json chunk = Chunk(choice, std::move(part));
    if (is_last && call_.timings) {
      chunk["timings"] = TimingsOf(choices_[choice]->end());
    } else if (call_.timings_per_token && choice_facts_[choice].first_token) {
      chunk["timings"] = TimingsSoFar(choice);
    }
    out += Event(chunk);
  }
  return out;
}

Json ApiAnswer::Chunk(size_t choice, AnswerChoice::Part part) const {
  Json chunk = Envelope(IsChat() ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = Json::array({{{"index", choice},
                                   {IsChat() ? "delta" : "text", std::move(part.delta)},
                                   {"logprobs", std::move(part.logprobs)},
                                   {"finish_reason", std::move(part.finish_reason)}}});
  if (call_.include_usage) chunk["usage"] = call_.continuous_usage ? Usage() : Json();
  return chunk;
}

Json ApiAnswer::TimingsSoFar(size_t choice) const {
  const ChoiceFacts& facts = choice_facts_[choice];
  const uint32_t predicted = choices_[choice]->tokens();
  const double seconds = absl::ToDoubleSeconds(facts.last_token - *facts.first_token);
  return {{"prompt_n", facts.prompt_tokens},
          {"prompt_ms", absl::ToDoubleMilliseconds(*facts.first_token)},
          {"predicted_n", predicted},
          {"predicted_ms", seconds * 1000},
          {"predicted_per_second", predicted > 1 && seconds > 0 ? (predicted - 1) / seconds : 0}};
}

bool ApiAnswer::IsChat() const { return call_.kind == ApiKind::kChat; }

bool ApiAnswer::complete() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const auto& choice) { return choice->ended(); });
}

std::string ApiAnswer::Tail() const {
  std::string out;
  if (call_.include_usage) {
    Json chunk = Envelope(IsChat() ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = Usage();
    out = Event(chunk);
  }
  return out + "data: [DONE]\n\n";
}

std::string ApiAnswer::Body() const {
  Json body = Envelope(IsChat() ? "chat.completion" : "text_completion");
  body["choices"] = Json::array();
  for (const auto& choice : choices_) body["choices"].push_back(choice->Whole());
  body["usage"] = Usage();
  if (call_.timings) body["timings"] = TimingsOf(choices_.front()->end());
  return JsonLine(body);
}

Json ApiAnswer::Envelope(const char* object) const {
  return {{"id", facts_.id},
          {"object", object},
          {"created", facts_.created_unix_s},
          {"model", facts_.model},
          {"system_fingerprint", fingerprint_}};
}

// A prompt counts once, however many choices go on from it.
Json ApiAnswer::Usage() const {
  uint64_t prompt = 0;
  uint64_t cached = 0;
  uint64_t completion = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    completion += choices_[i]->tokens();
    if (i % static_cast<size_t>(call_.n) != 0) continue;
    prompt += choice_facts_[i].prompt_tokens;
    cached += choice_facts_[i].cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
}

}  // namespace shardline
