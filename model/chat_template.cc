#include "model/chat_template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/chat_template_probe.h"
#include "model/jinja/template.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDepthMax = 64;  // Of lists and objects in what a client sends.

absl::Status Invalid(const std::string& what) {
  return MakeFailure(FailureKind::kInvalidRequest, what);
}

absl::Status TemplateFailure(const absl::Status& status) {
  return Invalid("chat template, " + std::string(status.message()));
}

// The text parts of a message's content, joined; nothing if there is none.
absl::StatusOr<std::optional<std::string>> TextOfContent(const Json& content, size_t index) {
  const std::string where = absl::StrCat("messages[", index, "].content");
  if (content.is_null()) return std::nullopt;
  if (content.is_string()) return content.get_ref<const std::string&>();
  if (!content.is_array()) return Invalid(where + " must be a string, null or a list of parts");
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) return Invalid(where + " may hold text parts only");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// A call's arguments as the template wants them: a JSON text, or what it says.
absl::Status ReadyArguments(bool as_object, size_t index, Json* call) {
  if (!call->is_object() || !call->contains("function") || !(*call)["function"].is_object()) {
    return Invalid(absl::StrCat("messages[", index, "].tool_calls must be function calls"));
  }
  Json& function = (*call)["function"];
  if (!function.contains("arguments")) function["arguments"] = "{}";
  Json& arguments = function["arguments"];
  if (as_object && arguments.is_string()) {
    Json parsed = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
    if (!parsed.is_object()) {
      return Invalid(
          absl::StrCat("messages[", index, "].tool_calls: arguments must be a JSON object"));
    }
    arguments = std::move(parsed);
  } else if (!as_object && !arguments.is_string()) {
    arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return absl::OkStatus();
}

absl::Status ReadyMessage(const ChatTemplateCaps& caps, size_t index, Json* message) {
  if (!message->is_object() || !message->contains("role") || !(*message)["role"].is_string()) {
    return Invalid(absl::StrCat("messages[", index, "] must be an object with a role"));
  }
  if ((*message)["role"] == "developer") (*message)["role"] = "system";
  SL_ASSIGN_OR_RETURN(std::optional<std::string> text,
                      TextOfContent(message->value("content", Json()), index));
  if (caps.takes_parts) {
    (*message)["content"] = Json::array();
    if (text.has_value()) {
      (*message)["content"].push_back({{"type", "text"}, {"text", *std::move(text)}});
    }
  } else {
    (*message)["content"] = text.value_or("");
  }
  const auto calls = message->find("tool_calls");
  if (calls == message->end()) return absl::OkStatus();
  if (calls->is_null() || (calls->is_array() && calls->empty())) {
    message->erase(calls);
    return absl::OkStatus();
  }
  if (!calls->is_array()) {
    return Invalid(absl::StrCat("messages[", index, "].tool_calls must be a list"));
  }
  for (Json& call : *calls) {
    SL_RETURN_IF_ERROR(ReadyArguments(caps.object_arguments, index, &call));
  }
  return absl::OkStatus();
}

// A system message where the template has no place for one: in front of the first user turn.
absl::Status FoldSystemMessages(Json* messages) {
  std::string folded;
  Json kept = Json::array();
  for (Json& message : *messages) {
    if (message["role"] == "system") {
      absl::StrAppend(&folded, message["content"].get_ref<const std::string&>(), "\n\n");
      continue;
    }
    if (!folded.empty() && message["role"] == "user") {
      message["content"] = folded + message["content"].get<std::string>();
      folded.clear();
    }
    kept.push_back(std::move(message));
  }
  if (!folded.empty()) return Invalid("a system message needs a user message after it");
  *messages = std::move(kept);
  return absl::OkStatus();
}

// Whether lists and objects stand in each other more than `levels` deep.
bool IsDeeperThan(const Json& json, int levels) {
  if (!json.is_structured()) return false;
  return levels == 0 || std::any_of(json.begin(), json.end(), [levels](const Json& part) {
           return IsDeeperThan(part, levels - 1);
         });
}

bool HasTools(const Json& tools) { return tools.is_array() && !tools.empty(); }

// The text up to the end of the final message's content, which must stand in it once.
absl::StatusOr<std::string> CutBehind(std::string text, const Json& message) {
  std::string content;
  if (message["content"].is_string()) {
    content = message["content"].get<std::string>();
  } else if (!message["content"].empty()) {
    content = message["content"].back()["text"].get<std::string>();
  }
  const size_t last = content.find_last_not_of(" \t\r\n");
  if (last == content.npos) return Invalid("the final message to continue is empty");
  const std::string wanted = content.substr(0, last + 1);
  const size_t found = text.rfind(wanted);
  if (found == text.npos) {
    return Invalid(
        "the chat template does not show the final message as it is: it cannot be "
        "continued");
  }
  text.resize(found + wanted.size());
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Create(ChatTemplateSpec spec) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate(std::move(spec)));
  auto parsed = jinja::Template::Parse(chat->spec_.source);
  if (!parsed.ok()) return TemplateFailure(parsed.status());
  chat->main_ = *std::move(parsed);
  if (!chat->spec_.tool_source.empty()) {
    auto with_tools = jinja::Template::Parse(chat->spec_.tool_source);
    if (!with_tools.ok()) return TemplateFailure(with_tools.status());
    chat->with_tools_ = *std::move(with_tools);
  }
  const auto render = [&chat](const ChatProbe& probe) {
    return chat->RenderReady(probe.messages, {.tools = probe.tools,
                                              .add_generation_prompt = probe.add_generation_prompt,
                                              .now = absl::UnixEpoch()});
  };
  chat->caps_ = ProbeCaps(render);
  return std::unique_ptr<const ChatTemplate>(std::move(chat));
}

ChatTemplate::ChatTemplate(ChatTemplateSpec spec) : spec_(std::move(spec)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::string> ChatTemplate::Render(const ChatInput& input) const {
  if (!input.messages.is_array() || input.messages.empty()) {
    return Invalid("messages must be a list of at least one message");
  }
  for (const Json* part : {&input.messages, &input.tools, &input.extra}) {
    if (IsDeeperThan(*part, kDepthMax)) return Invalid("the request is nested too deeply");
  }
  if (HasTools(input.tools) && !caps_.tools) {
    return Invalid("the chat template of this model has no place for tools");
  }
  if (!input.extra.is_null() && !input.extra.is_object()) {
    return Invalid("chat_template_kwargs must be an object");
  }
  Json messages = input.messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    SL_RETURN_IF_ERROR(ReadyMessage(caps_, i, &messages[i]));
  }
  if (!caps_.system_role && !caps_.takes_parts) SL_RETURN_IF_ERROR(FoldSystemMessages(&messages));
  SL_ASSIGN_OR_RETURN(std::string text, RenderReady(messages, input));
  if (!input.continue_final_message) return text;
  return CutBehind(std::move(text), messages.back());
}

absl::StatusOr<std::string> ChatTemplate::RenderReady(const Json& messages,
                                                      const ChatInput& input) const {
  const bool has_tools = HasTools(input.tools);
  const Json tools = has_tools ? input.tools : Json();
  const Json begin = spec_.bos_token;
  const Json end = spec_.eos_token;
  const Json prompts = input.add_generation_prompt && !input.continue_final_message;
  jinja::Variables variables = {{"messages", &messages},
                                {"tools", &tools},
                                {"bos_token", &begin},
                                {"eos_token", &end},
                                {"add_generation_prompt", &prompts}};
  if (input.extra.is_object()) {
    for (const auto& [name, value] : input.extra.items()) {
      const bool is_ours =
          std::any_of(variables.begin(), variables.end(),
                      [&name = name](const auto& known) { return known.first == name; });
      if (!is_ours) variables.emplace_back(name, &value);
    }
  }
  const jinja::Template& chosen = has_tools && with_tools_ != nullptr ? *with_tools_ : *main_;
  absl::StatusOr<std::string> text = chosen.Render(variables, input.now);
  if (!text.ok()) return TemplateFailure(text.status());
  return text;
}

}  // namespace shardline
