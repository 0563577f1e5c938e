#include "coordinator/gateway/api_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_messages.h"

namespace shardline {
namespace {

constexpr size_t kStopTextsMax = 4;
constexpr size_t kStopTokensMax = 256;
constexpr int kTopLogprobsMax = 20;
constexpr int kCompletionLogprobsMax = 5;
constexpr int64_t kDeadlineMsMax = 600'000;
constexpr size_t kSaltBytesMax = 128;
constexpr size_t kIgnoredMax = 16;
constexpr size_t kIgnoredBytesMax = 64;
constexpr int32_t kTokenMax = std::numeric_limits<int32_t>::max();

// Whose neglect would give an answer other than the one asked for.
struct RefusedField {
  const char* name;
  const char* message;
};
constexpr RefusedField kRefused[] = {
    {"functions", "functions is not supported: use `tools`"},
    {"function_call", "function_call is not supported: use `tool_choice`"},
    {"audio", "audio is not supported"},
    {"web_search_options", "web search is not supported"},
    {"prompt_logprobs", "log probabilities of the prompt are not supported"},
    {"prompt_embeds", "prompts as embeddings are not supported"},
    {"suffix", "a suffix is not supported"},
    {"chat_template", "a template in the request is not supported; the model's own is used"},
    {"guided_json", "use `response_format` with a json_schema"},
    {"guided_grammar", "use `grammar`"},
    {"guided_regex", "use `grammar`"},
    {"guided_choice", "use `grammar`"},
    {"structured_outputs", "use `response_format` or `grammar`"},
};

std::string Shown(std::string_view name) {
  std::string out(name.substr(0, kIgnoredBytesMax));
  if (name.size() > kIgnoredBytesMax) out += "...";
  return out;
}

class CallReader {
 public:
  CallReader(ApiKind kind, const Json& body, const ApiLimits& limits)
      : limits_(limits), body_(body, "", &error_) {
    call_.kind = kind;
  }

  ApiResult<ApiCall> Read() {
    RefuseFields();
    call_.model = body_.String("model").value_or("");
    if (is_chat()) {
      ReadChat();
    } else {
      ReadCompletion();
    }
    ReadLength();
    ReadSampling();
    ReadBias();
    ReadLogprobs();
    ReadStops();
    ReadFormat();
    ReadChoices();
    ReadStream();
    ReadExtras();
    if (error_) return *std::move(error_);
    NoteIgnored();
    return std::move(call_);
  }

 private:
  bool is_chat() const { return call_.kind == ApiKind::kChat; }

  void RefuseFields() {
    for (const RefusedField& field : kRefused) {
      if (body_.Has(field.name)) body_.Fail(Unsupported(field.name, field.message));
    }
    if (const Json* modalities = body_.Find("modalities");
        modalities != nullptr && *modalities != Json::array({"text"})) {
      body_.Fail(Unsupported("modalities", "the only modality is \"text\""));
    }
    if (body_.Bool("use_beam_search").value_or(false)) {
      body_.Fail(Unsupported("use_beam_search", "beam search is not supported"));
    }
  }

  void ReadChat() {
    call_.messages = ReadMessages(body_, &error_);
    call_.tool = ReadTools(body_, limits_, &error_);
    const Json* const extra = body_.Object("chat_template_kwargs");
    call_.template_extra = extra != nullptr ? *extra : Json::object();
    if (auto effort = body_.String("reasoning_effort")) {
      call_.template_extra["reasoning_effort"] = *effort;
    }
    const std::optional<bool> prompts = body_.Bool("add_generation_prompt");
    call_.continue_final_message = body_.Bool("continue_final_message").value_or(false);
    call_.add_generation_prompt = prompts.value_or(!call_.continue_final_message);
    if (!call_.continue_final_message || error_) return;
    if (call_.add_generation_prompt) {
      body_.Fail(InvalidValue("continue_final_message",
                              "continue_final_message and add_generation_prompt exclude each "
                              "other"));
    } else if (call_.messages.back()["role"] != "assistant") {
      body_.Fail(InvalidValue("continue_final_message",
                              "continue_final_message needs a last message of the assistant"));
    }
  }

  void ReadCompletion() {
    const Json* const prompt = body_.Find("prompt");
    if (prompt == nullptr) return body_.Fail(MissingParameter("prompt"));
    const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
    if (is_list) {
      for (size_t i = 0; i < prompt->size() && !error_; ++i) {
        AddPrompt((*prompt)[i], absl::StrCat("prompt[", i, "]"));
      }
    } else {
      AddPrompt(*prompt, "prompt");
    }
    call_.echo = body_.Bool("echo").value_or(false);
  }

  void AddPrompt(const Json& prompt, const std::string& path) {
    if (prompt.is_string()) {
      call_.prompts.push_back(prompt.get<std::string>());
      if (prompt == "") body_.Fail(InvalidValue(path, "the prompt is empty"));
      return;
    }
    if (!prompt.is_array()) {
      return body_.Fail(InvalidValue(path, path + " must be a string or an array of token ids"));
    }
    if (prompt.empty()) return body_.Fail(InvalidValue(path, "the prompt is empty"));
    call_.prompts.push_back(ReadTokens(prompt, path));
  }

  std::vector<int32_t> ReadTokens(const Json& ids, const std::string& path) {
    std::vector<int32_t> out;
    out.reserve(ids.size());
    for (const Json& id : ids) {
      if (!id.is_number_integer() || id < 0 || id > kTokenMax) {
        body_.Fail(InvalidValue(path, path + " must hold token ids"));
        break;
      }
      out.push_back(id.get<int32_t>());
    }
    return out;
  }

  void ReadLength() {
    const int64_t high = limits_.new_tokens_max;
    const std::optional<int64_t> newer = body_.Int("max_completion_tokens", 1, high);
    const std::optional<int64_t> older = body_.Int("max_tokens", 1, high);
    std::optional<int64_t> predict = body_.Int("n_predict", -1, high);
    if (predict == -1) predict.reset();  // No limit.
    if (predict == 0) body_.Fail(InvalidValue("n_predict", "n_predict must be at least 1"));
    const std::optional<int64_t> tokens = newer ? newer : older ? older : predict;
    if (tokens) call_.new_tokens_max = static_cast<uint32_t>(*tokens);
    call_.new_tokens_min = static_cast<uint32_t>(body_.Int("min_tokens", 0, high).value_or(0));
    if (call_.new_tokens_max && call_.new_tokens_min > *call_.new_tokens_max) {
      body_.Fail(InvalidValue("min_tokens", "min_tokens is greater than the tokens there may be"));
    }
  }

  void ReadSampling() {
    v1::Sampling& out = call_.sampling;
    out.set_temperature(static_cast<float>(body_.Number("temperature", 0, 2).value_or(1)));
    // 0 means "off" on the wire, but "the likeliest alone" to a client.
    constexpr double kTopPMin = 1e-6;
    const double top_p = body_.Number("top_p", 0, 1).value_or(1);
    out.set_top_p(static_cast<float>(std::max(top_p, kTopPMin)));
    out.set_min_p(static_cast<float>(body_.Number("min_p", 0, 1).value_or(0)));
    out.set_top_k(
        static_cast<uint32_t>(std::max<int64_t>(0, body_.Int("top_k", -1, kTokenMax).value_or(0))));
    out.set_frequency_penalty(
        static_cast<float>(body_.Number("frequency_penalty", -2, 2).value_or(0)));
    out.set_presence_penalty(
        static_cast<float>(body_.Number("presence_penalty", -2, 2).value_or(0)));
    constexpr double kRepetitionMin = 0.01;  // 0 means "off" on the wire.
    const std::optional<double> ours = body_.Number("repetition_penalty", kRepetitionMin, 100);
    const std::optional<double> theirs = body_.Number("repeat_penalty", kRepetitionMin, 100);
    out.set_repetition_penalty(static_cast<float>(ours ? *ours : theirs.value_or(1)));
    call_.seed = body_.Bits64("seed");
  }

  void ReadBias() {
    const Json* const bias = body_.Object("logit_bias");
    if (bias == nullptr) return;
    JsonFields fields(*bias, "logit_bias.", &error_);
    for (const auto& [key, value] : bias->items()) {
      int32_t id = -1;
      const char* const end = key.data() + key.size();
      const bool is_id = std::from_chars(key.data(), end, id).ptr == end && id >= 0;
      const std::string path = "logit_bias." + Shown(key);
      if (!is_id) return body_.Fail(InvalidValue(path, path + ": the key is no token id"));
      const double number = value.is_number() ? value.get<double>() : 101;
      if (number < -100 || number > 100) {
        return body_.Fail(InvalidValue(path, path + " must be a number from -100 to 100"));
      }
      (*call_.sampling.mutable_logit_bias())[id] = static_cast<float>(number);
    }
  }

  void ReadLogprobs() {
    const int64_t asked = is_chat() ? ChatLogprobs() : CompletionLogprobs();
    const int64_t probs = body_.Int("n_probs", 0, kTopLogprobsMax).value_or(0);
    const int64_t top = probs > 0 ? std::max(asked, probs) : asked;
    if (top < 0) return;
    call_.sampling.set_logprobs(true);
    call_.sampling.set_top_logprobs(static_cast<uint32_t>(top));
  }

  // How many alternatives to tell of each token; -1: no log-probabilities at all.
  int64_t ChatLogprobs() {
    const int64_t top = body_.Int("top_logprobs", 0, kTopLogprobsMax).value_or(0);
    if (body_.Bool("logprobs").value_or(false)) return top;
    if (top > 0) body_.Fail(InvalidValue("top_logprobs", "top_logprobs needs logprobs: true"));
    return -1;
  }

  int64_t CompletionLogprobs() {
    const int64_t top = body_.Int("logprobs", 0, kCompletionLogprobsMax).value_or(-1);
    if (top >= 0 && call_.echo) {
      body_.Fail(Unsupported("logprobs", "logprobs with echo is not supported"));
    }
    return top;
  }

  void ReadStops() {
    if (const Json* const stop = body_.Find("stop")) {
      if (stop->is_array()) {
        for (size_t i = 0; i < stop->size() && !error_; ++i) {
          AddStop((*stop)[i], absl::StrCat("stop[", i, "]"));
        }
      } else {
        AddStop(*stop, "stop");
      }
    }
    if (call_.stop_texts.size() > kStopTextsMax) {
      body_.Fail(InvalidValue("stop", absl::StrCat("stop has ", call_.stop_texts.size(),
                                                   " texts, at most ", kStopTextsMax)));
    }
    call_.include_stop_text = body_.Bool("include_stop_str_in_output").value_or(false);
    call_.ignore_eos = body_.Bool("ignore_eos").value_or(false);
    if (const Json* const ids = body_.Array("stop_token_ids")) {
      if (ids->size() > kStopTokensMax) {
        body_.Fail(InvalidValue("stop_token_ids", absl::StrCat("stop_token_ids has ", ids->size(),
                                                               " ids, at most ", kStopTokensMax)));
      }
      call_.stop_tokens = ReadTokens(*ids, "stop_token_ids");
    }
  }

  void AddStop(const Json& stop, const std::string& path) {
    if (!stop.is_string() || stop == "") {
      return body_.Fail(InvalidValue(path, path + " must be a string that is not empty"));
    }
    call_.stop_texts.push_back(stop.get<std::string>());
    if (call_.stop_texts.back().size() > limits_.stop_bytes_max) {
      body_.Fail(InvalidValue(path, absl::StrCat(path, " has ", call_.stop_texts.back().size(),
                                                 " bytes, at most ", limits_.stop_bytes_max)));
    }
  }

  void ReadFormat() {
    if (const Json* const format = body_.Object("response_format")) ReadResponseFormat(*format);
    if (const Json* const schema = body_.Object("json_schema")) SetSchema(*schema, "json_schema");
    if (const std::optional<std::string> grammar = body_.String("grammar");
        grammar && !grammar->empty()) {
      if (grammar->size() > limits_.grammar_bytes_max) {
        body_.Fail(
            InvalidValue("grammar", absl::StrCat("grammar has ", grammar->size(),
                                                 " bytes, at most ", limits_.grammar_bytes_max)));
      }
      SetFormat("grammar");
      call_.format.grammar = *grammar;
    }
  }

  void ReadResponseFormat(const Json& object) {
    JsonFields format(object, "response_format.", &error_);
    const std::optional<std::string> type = format.String("type");
    if (error_ || type == "text") return;
    if (type == "json_object") {
      SetFormat("response_format");
      call_.format.json_object = true;
      // llama-server's spelling of a schema.
      if (const Json* const schema = format.Object("schema")) {
        call_.format.json_object = false;
        call_.format.schema = *schema;
        call_.format.param = "response_format.schema";
      }
    } else if (type == "json_schema") {
      const Json* const wrapper = format.Object("json_schema");
      if (wrapper == nullptr) return format.Fail(MissingParameter("response_format.json_schema"));
      JsonFields named(*wrapper, "response_format.json_schema.", &error_);
      const Json* const schema = named.Object("schema");
      if (schema == nullptr) {
        return named.Fail(MissingParameter("response_format.json_schema.schema"));
      }
      SetSchema(*schema, "response_format.json_schema.schema");
    } else {
      format.Fail(Unsupported("response_format.type",
                              "response_format.type must be text, json_object or json_schema"));
    }
  }

  void SetSchema(const Json& schema, const std::string& param) {
    SetFormat(param);
    call_.format.schema = schema;
  }

  void SetFormat(const std::string& param) {
    if (call_.format.any()) {
      body_.Fail(InvalidValue(
          param, absl::StrCat(param, " and ", call_.format.param, " exclude each other")));
    }
    call_.format.param = param;
  }

  void ReadChoices() {
    call_.n = static_cast<int>(body_.Int("n", 1, limits_.choices_max).value_or(1));
    const auto prompts = static_cast<int64_t>(std::max<size_t>(1, call_.prompts.size()));
    if (prompts * call_.n > limits_.choices_max) {
      body_.Fail(InvalidValue(prompts > 1 ? "prompt" : "n",
                              absl::StrCat(prompts, " prompts x ", call_.n, " choices, at most ",
                                           limits_.choices_max, " are answered at once")));
    }
    const int64_t best_of = body_.Int("best_of", 1, 20).value_or(call_.n);
    if (best_of != call_.n) {
      body_.Fail(Unsupported("best_of", "best_of other than n is not supported"));
    }
  }

  void ReadStream() {
    call_.stream = body_.Bool("stream").value_or(false);
    if (const Json* const object = body_.Object("stream_options")) {
      if (!call_.stream) {
        body_.Fail(InvalidValue("stream_options", "stream_options needs stream: true"));
      }
      JsonFields options(*object, "stream_options.", &error_);
      call_.include_usage = options.Bool("include_usage").value_or(false);
      call_.continuous_usage =
          call_.include_usage && options.Bool("continuous_usage_stats").value_or(false);
    }
    call_.tokens_as_ids = body_.Bool("return_tokens_as_token_ids").value_or(false);
    call_.return_progress = call_.stream && body_.Bool("return_progress").value_or(false);
    call_.timings_per_token = body_.Bool("timings_per_token").value_or(false);
    call_.timings = body_.Bool("timings").value_or(false) || call_.timings_per_token;
  }

  void ReadExtras() {
    call_.skip_special_tokens = body_.Bool("skip_special_tokens").value_or(true);
    if (const auto keep = body_.Int("truncate_prompt_tokens", 1, kTokenMax)) {
      call_.truncate_prompt_tokens = static_cast<uint32_t>(*keep);
    }
    call_.deadline_ms = body_.Int("deadline_ms", 1, kDeadlineMsMax).value_or(0);
    call_.cache_prompt = body_.Bool("cache_prompt").value_or(true);
    call_.cache_salt = ShortText("cache_salt");
    call_.request_id = ShortText("request_id");
  }

  std::string ShortText(const char* name) {
    std::string text = body_.String(name).value_or("");
    if (text.size() > kSaltBytesMax) {
      body_.Fail(InvalidValue(
          name, absl::StrCat(name, " has ", text.size(), " bytes, at most ", kSaltBytesMax)));
    }
    return text;
  }

  void NoteIgnored() {
    for (const std::string& name : body_.Unasked()) {
      if (call_.ignored.size() == kIgnoredMax) break;
      call_.ignored.push_back(name.substr(0, kIgnoredBytesMax));
    }
  }

  const ApiLimits& limits_;
  std::optional<ApiError> error_;
  JsonFields body_;
  ApiCall call_;
};

}  // namespace

ApiResult<ApiCall> ReadApiCall(ApiKind kind, const Json& body, const ApiLimits& limits) {
  return CallReader(kind, body, limits).Read();
}

ApiResult<ApiCall> ParseApiCall(ApiKind kind, std::string_view body, const ApiLimits& limits) {
  const ApiResult<Json> json = ParseJson(body);
  if (!json.ok()) return json.error();
  if (!json->is_object()) return InvalidValue("", "the body must be a JSON object");
  return ReadApiCall(kind, *json, limits);
}

}  // namespace shardline
