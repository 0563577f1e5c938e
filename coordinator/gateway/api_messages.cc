#include "coordinator/gateway/api_messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace shardline {
namespace {

constexpr size_t kNameBytesMax = 128;

// The fields of element `index` of an array, or nothing when it is no object.
std::optional<JsonFields> ElementOf(const Json& array, size_t index, const std::string& path,
                                    std::optional<ApiError>* error) {
  if (array[index].is_object()) return JsonFields(array[index], path + ".", error);
  if (!*error) *error = InvalidValue(path, path + " must be an object");
  return std::nullopt;
}

// A part of a message's content as text.
std::string ReadPart(JsonFields& part, const std::string& path) {
  const std::string type = part.String("type").value_or("");
  if (part.failed()) return "";
  if (type.empty()) {
    part.Fail(MissingParameter(part.PathOf("type")));
  } else if (type != "text" && type != "refusal") {
    part.Fail(Unsupported(path, "content of a type other than \"text\" is not supported"));
  } else if (const std::optional<std::string> text = part.String(type)) {
    return *text;
  } else {
    part.Fail(MissingParameter(part.PathOf(type)));
  }
  return "";
}

// The parts of a content joined; nothing between them.
std::string ReadParts(const Json& parts, const std::string& path, std::optional<ApiError>* error) {
  std::string text;
  for (size_t i = 0; i < parts.size() && !*error; ++i) {
    const std::string part_path = absl::StrCat(path, "[", i, "]");
    std::optional<JsonFields> part = ElementOf(parts, i, part_path, error);
    if (part) text += ReadPart(*part, part_path);
  }
  return text;
}

// The content as a string, or null where it is absent.
Json ReadContent(JsonFields& message, std::optional<ApiError>* error) {
  const Json* const content = message.Find("content");
  if (content == nullptr) return nullptr;
  if (content->is_string()) return *content;
  if (content->is_array()) return ReadParts(*content, message.PathOf("content"), error);
  message.Fail(InvalidValue(message.PathOf("content"),
                            message.PathOf("content") + " must be a string or an array of parts"));
  return nullptr;
}

// Arguments as JSON text; some clients send the value itself.
std::string ReadArguments(JsonFields& function) {
  const Json* const arguments = function.Find("arguments");
  if (arguments == nullptr) return "{}";
  if (arguments->is_object()) return JsonLine(*arguments);
  if (!arguments->is_string()) {
    function.Fail(InvalidValue(function.PathOf("arguments"),
                               function.PathOf("arguments") + " must be a string of JSON"));
    return "{}";
  }
  const auto& text = arguments->get_ref<const std::string&>();
  return text.empty() ? "{}" : text;
}

Json ReadToolCall(JsonFields& call, std::optional<ApiError>* error) {
  if (const auto type = call.String("type"); type && *type != "function") {
    call.Fail(Unsupported(call.PathOf("type"), "the only type of a tool call is \"function\""));
  }
  const std::optional<std::string> id = call.String("id");
  if (!id) call.Fail(MissingParameter(call.PathOf("id")));
  const Json* const object = call.Object("function");
  if (object == nullptr) {
    call.Fail(MissingParameter(call.PathOf("function")));
    return nullptr;
  }
  JsonFields function(*object, call.PathOf("function."), error);
  const std::optional<std::string> name = function.String("name");
  if (!name) function.Fail(MissingParameter(function.PathOf("name")));
  const std::string arguments = ReadArguments(function);
  if (call.failed()) return nullptr;
  return {
      {"id", *id}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", arguments}}}};
}

// Null when the message makes none.
Json ReadToolCalls(JsonFields& message, std::optional<ApiError>* error) {
  const Json* const calls = message.Array("tool_calls");
  if (calls == nullptr || calls->empty()) return nullptr;
  Json out = Json::array();
  for (size_t i = 0; i < calls->size() && !*error; ++i) {
    const std::string path = absl::StrCat(message.PathOf("tool_calls"), "[", i, "]");
    std::optional<JsonFields> call = ElementOf(*calls, i, path, error);
    if (call) out.push_back(ReadToolCall(*call, error));
  }
  return out;
}

std::string ReadRole(JsonFields& message) {
  const std::optional<std::string> role = message.String("role");
  if (message.failed()) return "";
  if (!role) {
    message.Fail(MissingParameter(message.PathOf("role")));
    return "";
  }
  if (*role == "developer") return "system";
  if (*role == "system" || *role == "user" || *role == "assistant" || *role == "tool") return *role;
  message.Fail(*role == "function"
                   ? Unsupported(message.PathOf("role"), "use the role \"tool\" with `tools`")
                   : InvalidValue(message.PathOf("role"),
                                  message.PathOf("role") +
                                      " must be system, developer, user, assistant or tool"));
  return "";
}

Json ReadMessage(JsonFields& message, std::optional<ApiError>* error) {
  const std::string role = ReadRole(message);
  Json content = ReadContent(message, error);
  Json calls = role == "assistant" ? ReadToolCalls(message, error) : Json();
  if (content.is_null() && calls.is_null()) {
    // An assistant that said nothing is taken for one that said "".
    if (role != "assistant") message.Fail(MissingParameter(message.PathOf("content")));
    content = "";
  }
  if (message.Has("function_call")) {
    message.Fail(Unsupported(message.PathOf("function_call"), "use `tool_calls`"));
  }
  Json out = {{"role", role}, {"content", std::move(content)}};
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    if (auto text = message.String(name)) out[name] = *std::move(text);
  }
  if (!calls.is_null()) out["tool_calls"] = std::move(calls);
  return out;
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/' ||
                  c == ':';
         });
}

bool HasTool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&name](const Json& tool) { return tool["function"]["name"] == name; });
}

Json ReadTool(JsonFields& tool, const Json& before, bool* strict, std::optional<ApiError>* error) {
  if (tool.String("type").value_or("") != "function") {
    tool.Fail(Unsupported(tool.PathOf("type"), "the only type of a tool is \"function\""));
  }
  const Json* const object = tool.Object("function");
  if (object == nullptr) {
    tool.Fail(MissingParameter(tool.PathOf("function")));
    return nullptr;
  }
  JsonFields function(*object, tool.PathOf("function."), error);
  const std::string name = function.String("name").value_or("");
  if (!IsToolName(name)) {
    function.Fail(InvalidValue(function.PathOf("name"),
                               absl::StrCat(function.PathOf("name"), " must have 1 to ",
                                            kNameBytesMax, " letters, digits or any of _-./:")));
  } else if (HasTool(before, name)) {
    function.Fail(InvalidValue(function.PathOf("name"), "two tools have this name: " + name));
  }
  Json out = {{"name", name}};
  if (auto description = function.String("description")) out["description"] = *description;
  const Json* const parameters = function.Object("parameters");
  out["parameters"] = parameters != nullptr
                          ? *parameters
                          : Json{{"type", "object"}, {"properties", Json::object()}};
  *strict = function.Bool("strict").value_or(false);
  return {{"type", "function"}, {"function", std::move(out)}};
}

void ReadToolList(JsonFields& body, const ApiLimits& limits, ToolWish* wish,
                  std::optional<ApiError>* error) {
  const Json* const tools = body.Array("tools");
  if (tools == nullptr) return;
  if (tools->empty()) {
    body.Fail(InvalidValue("tools", "tools must not be empty; leave it out instead"));
  } else if (tools->size() > limits.tools_max) {
    body.Fail(InvalidValue("tools", absl::StrCat("tools has ", tools->size(), " entries, at most ",
                                                 limits.tools_max)));
  }
  wish->tools = Json::array();
  for (size_t i = 0; i < tools->size() && !*error; ++i) {
    std::optional<JsonFields> tool = ElementOf(*tools, i, absl::StrCat("tools[", i, "]"), error);
    if (!tool) return;
    bool strict = false;
    Json read = ReadTool(*tool, wish->tools, &strict, error);
    wish->tools.push_back(std::move(read));
    wish->strict.push_back(strict);
  }
}

void ReadNamedChoice(const Json& object, JsonFields& body, ToolWish* wish,
                     std::optional<ApiError>* error) {
  JsonFields choice(object, "tool_choice.", error);
  if (choice.String("type").value_or("") != "function") {
    choice.Fail(Unsupported("tool_choice.type", "the only type of a tool_choice is \"function\""));
  }
  if (const Json* const named = choice.Object("function")) {
    JsonFields function(*named, "tool_choice.function.", error);
    wish->named = function.String("name").value_or("");
  }
  wish->mode = ToolMode::kNamed;
  if (body.failed() || (!wish->tools.is_null() && HasTool(wish->tools, wish->named))) return;
  body.Fail(InvalidValue("tool_choice", "tool_choice names a function that is not in `tools`"));
}

void ReadToolChoice(JsonFields& body, ToolWish* wish, std::optional<ApiError>* error) {
  const bool has_tools = !wish->tools.is_null();
  wish->mode = has_tools ? ToolMode::kAuto : ToolMode::kNone;
  const Json* const choice = body.Find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) return ReadNamedChoice(*choice, body, wish, error);
  if (*choice == "auto") return;
  if (*choice == "none") {
    wish->mode = ToolMode::kNone;
  } else if (*choice == "required") {
    wish->mode = ToolMode::kRequired;
    if (!has_tools) body.Fail(InvalidValue("tool_choice", "tool_choice needs `tools`"));
  } else {
    body.Fail(
        InvalidValue("tool_choice", "tool_choice must be none, auto, required or name a function"));
  }
}

}  // namespace

Json ReadMessages(JsonFields& body, std::optional<ApiError>* error) {
  const Json* const messages = body.Array("messages");
  if (messages == nullptr) {
    body.Fail(MissingParameter("messages"));
    return Json::array();
  }
  if (messages->empty()) body.Fail(InvalidValue("messages", "messages must not be empty"));
  Json out = Json::array();
  for (size_t i = 0; i < messages->size() && !*error; ++i) {
    std::optional<JsonFields> message =
        ElementOf(*messages, i, absl::StrCat("messages[", i, "]"), error);
    if (message) out.push_back(ReadMessage(*message, error));
  }
  return out;
}

ToolWish ReadTools(JsonFields& body, const ApiLimits& limits, std::optional<ApiError>* error) {
  ToolWish wish;
  ReadToolList(body, limits, &wish, error);
  ReadToolChoice(body, &wish, error);
  wish.is_parallel = body.Bool("parallel_tool_calls").value_or(true);
  return wish;
}

}  // namespace shardline
