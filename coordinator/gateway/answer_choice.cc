#include "coordinator/gateway/answer_choice.h"

#include <utility>

#include "base/check.h"
#include "coordinator/gateway/utf8_repair.h"

namespace shardline {
namespace {

absl::flat_hash_set<std::string> NamesOf(const ToolWish& tool) {
  absl::flat_hash_set<std::string> names;
  if (tool.tools.is_null()) return names;
  for (const Json& entry : tool.tools) names.insert(entry["function"]["name"].get<std::string>());
  return names;
}

}  // namespace

AnswerChoice::AnswerChoice(size_t index, uint64_t call_id_key, const Tokenizer* tokenizer,
                           const ApiCall& call, const PreparedCall& prepared)
    : index_(index),
      call_id_key_(call_id_key),
      call_(call),
      prepared_(prepared),
      tokenizer_(tokenizer),
      style_{.tokenizer = tokenizer,
             .tokens_as_ids = call.tokens_as_ids,
             .shows_control = !call.skip_special_tokens},
      hold_(call.stop_texts, call.include_stop_text) {
  if (prepared.tool_format != ToolFormat::kNone) {
    tools_.emplace(prepared.tool_format, NamesOf(call.tool));
  }
}

std::vector<AnswerChoice::Part> AnswerChoice::Open() {
  SL_CHECK(!opened_);
  opened_ = true;
  if (is_chat()) return {{.delta = {{"role", "assistant"}, {"content", ""}}}};
  if (!call_.echo) return {};
  const size_t prompt = index_ / static_cast<size_t>(call_.n);
  text_ = RepairUtf8(prepared_.prompts[prompt].text);
  return {{.delta = text_}};
}

std::vector<AnswerChoice::Part> AnswerChoice::OnToken(const v1::GenerateToken& token) {
  std::vector<Part> parts;
  if (ended()) return parts;
  tokens_ = token.token().index() + 1;
  if (call_.sampling.logprobs()) AddLogprob(token.token());
  AddText(TextOf(token), &parts);
  if (call_.stream && call_.sampling.logprobs()) {
    if (parts.empty()) parts.push_back({.delta = is_chat() ? Json::object() : Json("")});
    parts.front().logprobs = std::exchange(logprobs_, nullptr);
  }
  return parts;
}

std::vector<AnswerChoice::Part> AnswerChoice::OnEnd(const v1::GenerateEnd& end) {
  std::vector<Part> parts;
  if (ended()) return parts;
  // Half a character that the limit cut off is not shown; one that the model ended with is.
  if (end.reason() != v1::FINISH_REASON_LENGTH) AddText(RepairUtf8(end.text()), &parts);
  std::string rest = hold_.Flush();
  if (!tools_) {
    if (!rest.empty()) AddEvents({{.text = std::move(rest)}}, &parts);
  } else {
    AddEvents(tools_->Push(rest), &parts);
    AddEvents(tools_->Flush(), &parts);
  }
  end_ = end;
  tokens_ = end.generated_tokens();
  parts.push_back(
      {.delta = is_chat() ? Json::object() : Json(""), .finish_reason = FinishReason()});
  return parts;
}

// Bytes that are no UTF-8 are replaced here, once for stream and whole answer.
std::string AnswerChoice::TextOf(const v1::GenerateToken& token) const {
  const int32_t id = token.token().token();
  std::string text = RepairUtf8(token.text());
  if (!tokenizer_->IsControl(id)) return text;
  const std::string name = RepairUtf8(tokenizer_->TokenBytes(id));
  const bool is_mark = tools_ && (name == ToolCallMark(prepared_.tool_format) ||
                                  name == ToolCallEndMark(prepared_.tool_format) ||
                                  prepared_.tool_format == ToolFormat::kLlama3);
  return style_.shows_control || is_mark ? text + name : text;
}

void AnswerChoice::AddText(std::string text, std::vector<Part>* parts) {
  std::string visible = hold_.Push(text);
  if (visible.empty()) return;
  if (tools_) {
    AddEvents(tools_->Push(visible), parts);
  } else {
    AddEvents({{.text = std::move(visible)}}, parts);
  }
}

void AnswerChoice::AddEvents(std::vector<ToolEvent> events, std::vector<Part>* parts) {
  for (ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::kText) {
      text_ += event.text;
      parts->push_back({.delta = is_chat() ? Json{{"content", std::move(event.text)}}
                                           : Json(std::move(event.text))});
      continue;
    }
    Json call = {{"index", event.index}};
    if (event.kind == ToolEvent::Kind::kCall) {
      calls_.push_back({.id = ToolCallId(prepared_.tool_format, call_id_key_, index_, event.index),
                        .name = event.text});
      call["id"] = calls_.back().id;
      call["type"] = "function";
      call["function"] = {{"name", std::move(event.text)}, {"arguments", ""}};
    } else {
      calls_.back().arguments += event.text;
      call["function"] = {{"arguments", std::move(event.text)}};
    }
    parts->push_back({.delta = {{"tool_calls", Json::array({std::move(call)})}}});
  }
}

void AnswerChoice::AddLogprob(const v1::RunToken& token) {
  if (is_chat()) {
    if (logprobs_.is_null()) logprobs_ = {{"content", Json::array()}, {"refusal", nullptr}};
    logprobs_["content"].push_back(ChatLogprob(token, style_));
  } else {
    if (logprobs_.is_null()) logprobs_ = EmptyCompletionLogprobs();
    AddCompletionLogprob(token, style_, text_length_, &logprobs_);
  }
  const bool is_text = style_.shows_control || !tokenizer_->IsControl(token.token());
  const bool is_known = token.token() >= 0 && token.token() < tokenizer_->vocab_size();
  if (is_text && is_known) text_length_ += Utf8Length(tokenizer_->TokenBytes(token.token()));
}

// A closed set: clients that check take any other for no answer at all. What ended for a reason
// that is not known here was not finished by the model.
std::string AnswerChoice::FinishReason() const {
  if (hold_.stopped()) return "stop";
  if (end_->reason() != v1::FINISH_REASON_STOP) return "length";
  return calls_.empty() ? "stop" : "tool_calls";
}

Json AnswerChoice::Whole() const {
  SL_CHECK(ended());
  if (!is_chat()) {
    return {{"index", index_},
            {"text", text_},
            {"logprobs", logprobs_},
            {"finish_reason", FinishReason()}};
  }
  Json message = {{"role", "assistant"}, {"content", text_}, {"refusal", nullptr}};
  if (!calls_.empty()) {
    if (text_.empty()) message["content"] = nullptr;
    message["tool_calls"] = Json::array();
    for (const Call& call : calls_) {
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
  }
  return {{"index", index_},
          {"message", std::move(message)},
          {"logprobs", logprobs_},
          {"finish_reason", FinishReason()}};
}

}  // namespace shardline
