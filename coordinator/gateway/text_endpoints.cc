#include "coordinator/gateway/text_endpoints.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "coordinator/gateway/api_prompt.h"
#include "coordinator/gateway/api_request.h"
#include "coordinator/gateway/generation_spec.h"
#include "coordinator/gateway/utf8_repair.h"

namespace shardline {
namespace {

constexpr size_t kTokensMax = size_t{1} << 20;

ApiResult<ApiCall> ReadConversation(const Json& body) {
  return ReadApiCall(ApiKind::kChat, body, {});
}

ApiResult<std::vector<int32_t>> TokensOfConversation(const Json& body, const GatewayModel& model,
                                                     absl::Time now) {
  ApiResult<ApiCall> call = ReadConversation(body);
  if (!call.ok()) return call.error();
  const ApiModel api_model = ToApiModel(model);
  ApiResult<std::string> text = RenderChat(*call, api_model, {.seed = 0, .now = now});
  if (!text.ok()) return text.error();
  return TokensOfChat(*text, api_model);
}

// As text, or as bytes when they are none.
Json PieceOf(const Tokenizer& tokenizer, int32_t id) {
  const std::string bytes(tokenizer.TokenBytes(id));
  if (RepairUtf8(bytes) == bytes) return bytes;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

ApiResult<std::vector<int32_t>> TokensOf(const Json& body, const Tokenizer& tokenizer) {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const Json* list = fields.Array("tokens");
  if (error.has_value()) return *std::move(error);
  if (list == nullptr) return MissingParameter("tokens");
  if (list->size() > kTokensMax) {
    return InvalidValue("tokens", absl::StrCat("At most ", kTokensMax, " tokens."));
  }
  std::vector<int32_t> ids;
  ids.reserve(list->size());
  for (const Json& item : *list) {
    const bool fits = item.is_number_integer() && item >= 0 && item < tokenizer.vocab_size();
    if (!fits) {
      return InvalidValue(
          absl::StrCat("tokens[", ids.size(), "]"),
          absl::StrCat("A token id is from 0 to ", tokenizer.vocab_size() - 1, "."));
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace

ApiResult<std::string> ModelNamed(const Json& body) {
  std::optional<ApiError> error;
  if (!body.is_object()) {
    ApiError no_object = InvalidValue("", "The body must be a JSON object.");
    no_object.param = std::nullopt;
    return no_object;
  }
  std::string name = JsonFields(body, "", &error).String("model").value_or("");
  if (error.has_value()) return *std::move(error);
  return name;
}

ApiResult<Json> Tokenize(const Json& body, const GatewayModel& model, absl::Time now) {
  const Tokenizer& tokenizer = *model.file->tokenizer;
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const bool is_content = fields.Has("content");
  const std::optional<std::string> text = fields.String(is_content ? "content" : "prompt");
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  const bool add_special =
      fields.Bool(is_content ? "add_special" : "add_special_tokens").value_or(!is_content);
  const bool parse_special = fields.Bool("parse_special").value_or(true);
  if (error.has_value()) return *std::move(error);

  std::vector<int32_t> ids;
  if (text.has_value()) {
    absl::StatusOr<std::vector<int32_t>> encoded =
        tokenizer.Encode(*text, {.add_special = add_special, .parse_special = parse_special});
    if (!encoded.ok()) return ErrorOf(encoded.status());
    ids = *std::move(encoded);
  } else if (fields.Has("messages")) {
    ApiResult<std::vector<int32_t>> rendered = TokensOfConversation(body, model, now);
    if (!rendered.ok()) return rendered.error();
    ids = *std::move(rendered);
  } else {
    return MissingParameter("prompt");
  }
  Json answer = {{"count", ids.size()}, {"max_model_len", model.context_tokens_max}};
  if (!with_pieces) {
    answer["tokens"] = std::move(ids);
    return answer;
  }
  Json tokens = Json::array();
  for (const int32_t id : ids) {
    tokens.push_back({{"id", id}, {"piece", PieceOf(tokenizer, id)}});
  }
  answer["tokens"] = std::move(tokens);
  return answer;
}

ApiResult<Json> Detokenize(const Json& body, const GatewayModel& model) {
  const Tokenizer& tokenizer = *model.file->tokenizer;
  ApiResult<std::vector<int32_t>> ids = TokensOf(body, tokenizer);
  if (!ids.ok()) return ids.error();
  const absl::StatusOr<std::string> decoded = tokenizer.Decode(*ids, /*show_special=*/true);
  if (!decoded.ok()) return ErrorOf(decoded.status());
  const std::string text = RepairUtf8(*decoded);
  return Json{{"prompt", text}, {"content", text}};
}

ApiResult<Json> ApplyTemplate(const Json& body, const GatewayModel& model, absl::Time now) {
  ApiResult<ApiCall> call = ReadConversation(body);
  if (!call.ok()) return call.error();
  ApiResult<std::string> text = RenderChat(*call, ToApiModel(model), {.seed = 0, .now = now});
  if (!text.ok()) return text.error();
  return Json{{"prompt", *std::move(text)}};
}

Json ModelEntry(const GatewayModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", "shardline"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.context_tokens_max},
          {"meta",
           {{"n_ctx_train", model.file->hyper.context_length},
            {"n_vocab", model.file->tokenizer->vocab_size()},
            {"size", model.file->bytes},
            {"quantisation", model.file->quantisation}}}};
}

Json ModelList(const std::vector<GatewayModel>& models) {
  Json list = Json::array();
  for (const GatewayModel& model : models) list.push_back(ModelEntry(model));
  return {{"object", "list"}, {"data", std::move(list)}};
}

Json Props(const GatewayModel& model) {
  const Tokenizer& tokenizer = *model.file->tokenizer;
  const auto token = [&tokenizer](const std::optional<int32_t>& id) {
    return id.has_value() ? RepairUtf8(tokenizer.TokenBytes(*id)) : std::string();
  };
  const ChatTemplate* chat_template = model.chat_template.get();
  Json props = {{"default_generation_settings", {{"n_ctx", model.context_tokens_max}}},
                {"model", model.name},
                {"chat_template", chat_template == nullptr ? "" : chat_template->source()},
                {"bos_token", token(tokenizer.bos_id())},
                {"eos_token", token(tokenizer.eos_id())},
                {"build_info", std::string(kVersion)}};
  if (chat_template == nullptr) return props;
  const ChatTemplateCaps& caps = chat_template->caps();
  props["chat_template_caps"] = {{"supports_system_role", caps.system_role},
                                 {"supports_tools", caps.tools},
                                 {"supports_tool_calls", caps.tool_calls}};
  return props;
}

}  // namespace shardline
