#include "model/chat_template_probe.h"

#include <initializer_list>
#include <string_view>
#include <utility>

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template holds by itself.
constexpr char kUser[] = "<probe-of-user>";
constexpr char kSystem[] = "<probe-of-system>";
constexpr char kAnswer[] = "<probe-of-answer>";
constexpr char kResult[] = "<probe-of-result>";
constexpr char kTool[] = "probe_of_tool";
constexpr char kArgument[] = "probe_of_argument";

Json Message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

Json Parts(const char* text) { return Json::array({{{"type", "text"}, {"text", text}}}); }

Json Tools() {
  const Json parameters = {{"type", "object"},
                           {"properties", {{kArgument, {{"type", "string"}}}}},
                           {"required", Json::array({kArgument})}};
  return Json::array(
      {{{"type", "function"},
        {"function", {{"name", kTool}, {"description", "A probe."}, {"parameters", parameters}}}}});
}

Json AssistantCall(const Json& arguments, const Json& content) {
  return {
      {"role", "assistant"},
      {"content", content},
      {"tool_calls", Json::array({{{"id", "probe0001"},
                                   {"type", "function"},
                                   {"function", {{"name", kTool}, {"arguments", arguments}}}}})}};
}

class Prober {
 public:
  explicit Prober(const RenderProbe& render) : render_(render) {}

  ChatTemplateCaps Run() {
    ChatTemplateCaps caps;
    caps.takes_parts = !Shows({Message("user", kUser)}, {kUser}) &&
                       Shows({Message("user", Parts(kUser))}, {kUser});
    takes_parts_ = caps.takes_parts;
    const Json user = Message("user", Content(kUser));
    caps.system_role = Shows({Message("system", Content(kSystem)), user}, {kSystem, kUser});
    const std::string without = Rendered({user}, false);
    caps.generation_prompt = Rendered({user}, true) != without;
    tools_ = Tools();
    caps.tools = Shows({user}, {kTool});
    ProbeCalls(user, &caps);
    return caps;
  }

 private:
  Json Content(const char* text) const { return takes_parts_ ? Parts(text) : Json(text); }

  std::string Rendered(Json messages, bool add_generation_prompt) const {
    const absl::StatusOr<std::string> text =
        render_({std::move(messages), tools_, add_generation_prompt});
    return text.ok() ? *text : "";
  }

  bool Shows(std::initializer_list<Json> messages,
             std::initializer_list<std::string_view> words) const {
    const std::string text = Rendered(Json::array_t(messages), /*add_generation_prompt=*/false);
    for (const std::string_view word : words) {
      if (text.find(word) == text.npos) return false;
    }
    return true;
  }

  void ProbeCalls(const Json& user, ChatTemplateCaps* caps) const {
    const Json arguments = {{kArgument, "value"}};
    const Json as_object = AssistantCall(arguments, Content(""));
    const Json as_text = AssistantCall(arguments.dump(), Content(""));
    const Json result = {{"role", "tool"},
                         {"tool_call_id", "probe0001"},
                         {"name", kTool},
                         {"content", Content(kResult)}};
    const Json last = Message("assistant", Content(kAnswer));
    const std::string objects = Rendered(Json::array({user, as_object, result, last}), false);
    const std::string texts = Rendered(Json::array({user, as_text, result, last}), false);
    // Objects that a template prints without making JSON of them come out in Python's quotes.
    const std::string pythonic = std::string("'") + kArgument + "'";
    caps->object_arguments =
        objects.find(kArgument) != objects.npos && objects.find(pythonic) == objects.npos;
    const std::string& shown = caps->object_arguments ? objects : texts;
    caps->tool_calls = shown.find(kArgument, ToolsEnd(shown)) != shown.npos;
    caps->tool_results = shown.find(kResult) != shown.npos;
  }

  // Behind the description of the tools, which names the argument too.
  size_t ToolsEnd(const std::string& text) const {
    const size_t user = text.find(kUser);
    return user == text.npos ? 0 : user;
  }

  const RenderProbe& render_;
  Json tools_;
  bool takes_parts_ = false;
};

}  // namespace

ChatTemplateCaps ProbeCaps(const RenderProbe& render) { return Prober(render).Run(); }

}  // namespace shardline
