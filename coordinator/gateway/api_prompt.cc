#include "coordinator/gateway/api_prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_rules.h"
#include "model/chat_template.h"

namespace shardline {
namespace {

constexpr uint32_t kCompletionTokensDefault = 16;  // As OpenAI has it.

bool HasMessage(const Json& messages, bool (*is_meant)(const Json& message)) {
  return std::any_of(messages.begin(), messages.end(), is_meant);
}

ToolFormat FormatOf(const ApiCall& call, const ChatTemplate& chat_template) {
  if (call.tool.mode == ToolMode::kNone) return ToolFormat::kNone;
  return ToolFormatOf(chat_template.source(), chat_template.caps().tools);
}

bool NeedsToolText(const ApiCall& call, ToolFormat format, const ChatTemplateCaps& caps) {
  if (format == ToolFormat::kGeneric) return true;
  const bool has_calls =
      HasMessage(call.messages, [](const Json& m) { return m.contains("tool_calls"); });
  const bool has_results =
      HasMessage(call.messages, [](const Json& m) { return m["role"] == "tool"; });
  return (has_calls && !caps.tool_calls) || (has_results && !caps.tool_results);
}

class CallPreparer {
 public:
  CallPreparer(const ApiCall& call, const ApiModel& model, const ApiArrival& arrival)
      : call_(call), model_(model), arrival_(arrival) {}

  ApiResult<PreparedCall> Prepare() {
    Check();
    if (is_chat()) {
      PrepareChat();
    } else {
      for (size_t i = 0; i < call_.prompts.size(); ++i) AddPrompt(call_.prompts[i]);
    }
    AddRequests();
    if (error_) return *std::move(error_);
    return std::move(out_);
  }

 private:
  bool is_chat() const { return call_.kind == ApiKind::kChat; }
  const char* prompt_param() const { return is_chat() ? "messages" : "prompt"; }

  void Fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }

  // The value, or nothing with its error noted.
  template <typename T>
  std::optional<T> Take(ApiResult<T> result) {
    if (result.ok()) return *std::move(result);
    Fail(result.error());
    return std::nullopt;
  }

  bool Knows(int32_t id) const { return id >= 0 && id < model_.tokenizer->vocab_size(); }

  std::string Unknown(int32_t id) const {
    return absl::StrCat("token id ", id, " is outside the vocabulary of ",
                        model_.tokenizer->vocab_size());
  }

  void Check() {
    for (const auto& [id, bias] : call_.sampling.logit_bias()) {
      if (!Knows(id)) Fail(InvalidValue(absl::StrCat("logit_bias.", id), Unknown(id)));
    }
    for (const int32_t id : call_.stop_tokens) {
      if (!Knows(id)) Fail(InvalidValue("stop_token_ids", Unknown(id)));
    }
  }

  void PrepareChat() {
    std::optional<std::string> text = Take(RenderChat(call_, model_, arrival_));
    if (!text) return;
    out_.tool_format = FormatOf(call_, *model_.chat_template);
    std::optional<std::vector<int32_t>> tokens = Take(TokensOfChat(*text, model_));
    if (tokens) AddTokens(*std::move(tokens), *std::move(text));
  }

  void AddPrompt(const ApiPrompt& prompt) {
    if (const auto* const text = std::get_if<std::string>(&prompt)) {
      auto tokens = model_.tokenizer->Encode(*text, {.add_special = true, .parse_special = true});
      if (!tokens.ok()) return Fail(ErrorOf(tokens.status()));
      return AddTokens(*std::move(tokens), *text);
    }
    const auto& ids = std::get<std::vector<int32_t>>(prompt);
    for (const int32_t id : ids) {
      if (!Knows(id)) return Fail(InvalidValue("prompt", Unknown(id)));
    }
    const auto text = model_.tokenizer->Decode(ids, /*show_special=*/true);
    AddTokens(ids, text.value_or(""));
  }

  void AddTokens(std::vector<int32_t> tokens, std::string text) {
    const size_t kept = call_.truncate_prompt_tokens.value_or(tokens.size());
    if (tokens.size() > kept)
      tokens.erase(tokens.begin(), tokens.end() - static_cast<int64_t>(kept));
    if (tokens.empty()) return Fail(InvalidValue(prompt_param(), "the prompt is empty"));
    out_.prompts.push_back({.tokens = std::move(tokens), .text = std::move(text)});
  }

  // How many tokens may follow a prompt: what was asked for, as far as there is room. An answer
  // that the window ends says so by its finish_reason; a prompt is never cut.
  std::optional<uint32_t> NewTokensFor(size_t prompt_tokens) {
    const auto context = static_cast<size_t>(std::max(0, model_.context_tokens_max));
    if (prompt_tokens >= context) {
      Fail(ContextLengthExceeded(prompt_param(), prompt_tokens, 0, context));
      return std::nullopt;
    }
    const auto room = static_cast<uint32_t>(context - prompt_tokens);
    if (call_.new_tokens_max) return std::min(room, *call_.new_tokens_max);
    return is_chat() ? room : std::min(room, kCompletionTokensDefault);
  }

  void AddRequests() {
    if (error_) return;
    const std::optional<v1::TextRules> rules = Take(RulesOf(call_, out_.tool_format));
    if (!rules) return;
    for (const PreparedPrompt& prompt : out_.prompts) {
      const std::optional<uint32_t> new_tokens = NewTokensFor(prompt.tokens.size());
      if (!new_tokens) return;
      if (call_.new_tokens_min > *new_tokens) {
        return Fail(InvalidValue("min_tokens", absl::StrCat("min_tokens is ", call_.new_tokens_min,
                                                            ", there is room for ", *new_tokens)));
      }
      for (int choice = 0; choice < call_.n; ++choice) {
        out_.requests.push_back(RequestFor(prompt, *new_tokens, *rules, choice));
      }
    }
  }

  v1::GenerateRequest RequestFor(const PreparedPrompt& prompt, uint32_t new_tokens,
                                 const v1::TextRules& rules, int choice) const {
    v1::GenerateRequest request;
    request.set_model(model_.name);
    request.mutable_tokens()->mutable_ids()->Assign(prompt.tokens.begin(), prompt.tokens.end());
    request.set_new_tokens_max(new_tokens);
    *request.mutable_sampling() = call_.sampling;
    request.mutable_sampling()->set_seed(call_.seed.value_or(arrival_.seed) +
                                         static_cast<uint64_t>(choice));
    request.mutable_stop_tokens()->Assign(call_.stop_tokens.begin(), call_.stop_tokens.end());
    request.set_ignore_eos(call_.ignore_eos);
    request.set_deadline_ms(call_.deadline_ms);
    request.set_no_prefix_cache(!call_.cache_prompt);
    request.set_want_progress(call_.return_progress);
    *request.mutable_rules() = rules;
    return request;
  }

  const ApiCall& call_;
  const ApiModel& model_;
  const ApiArrival& arrival_;
  std::optional<ApiError> error_;
  PreparedCall out_;
};

}  // namespace

ApiResult<PreparedCall> PrepareCall(const ApiCall& call, const ApiModel& model,
                                    const ApiArrival& arrival) {
  return CallPreparer(call, model, arrival).Prepare();
}

ApiResult<std::string> RenderChat(const ApiCall& call, const ApiModel& model,
                                  const ApiArrival& arrival) {
  if (model.chat_template == nullptr) {
    return Unsupported("messages", absl::StrCat("the model ", model.name,
                                                " has no chat template; use /v1/completions"));
  }
  const ToolFormat format = FormatOf(call, *model.chat_template);
  const bool as_text = NeedsToolText(call, format, model.chat_template->caps());
  ChatInput input{
      .messages = as_text ? MessagesWithToolText(call.messages, call.tool) : call.messages,
      .extra = call.template_extra,
      .add_generation_prompt = call.add_generation_prompt,
      .continue_final_message = call.continue_final_message,
      .now = arrival.now};
  if (format != ToolFormat::kNone && !as_text) input.tools = call.tool.tools;
  absl::StatusOr<std::string> text = model.chat_template->Render(input);
  if (!text.ok()) {
    return InvalidValue("messages", absl::StrCat("the chat template: ", text.status().message()));
  }
  return *std::move(text);
}

ApiResult<std::vector<int32_t>> TokensOfChat(std::string_view text, const ApiModel& model) {
  absl::StatusOr<std::vector<int32_t>> ids =
      model.tokenizer->Encode(text, {.add_special = false, .parse_special = true});
  if (!ids.ok()) return ErrorOf(ids.status());
  const bool wants_bos = model.tokenizer->adds_bos();
  if (wants_bos && (ids->empty() || ids->front() != model.tokenizer->bos_id())) {
    ids->insert(ids->begin(), *model.tokenizer->bos_id());
  }
  return *std::move(ids);
}

}  // namespace shardline
