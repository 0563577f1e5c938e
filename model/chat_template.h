#pragma once

// A conversation becomes the text that a model was trained on.
//
// The template is the model's own (GGUF key `tokenizer.chat_template`) or a named built-in; the
// engine (model/jinja) is a sandbox, so a hostile template costs bounded time and memory and ends
// in an error. The text already holds what the template says about special tokens, BOS too: encode
// it with add_special false and parse_special true.
// Immutable after Create, so any thread; renderings share nothing.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace shardline {

namespace jinja {
class Template;
}  // namespace jinja

// Where the template comes from and what it may name of its model.
struct ChatTemplateSpec {
  std::string source;       // Jinja.
  std::string tool_source;  // Used in place of `source` when tools are given; empty: none.
  std::string bos_token;    // Text of the tokens, as `bos_token` and `eos_token`.
  std::string eos_token;
};

// What a template can express; found once by rendering small conversations.
struct ChatTemplateCaps {
  bool system_role = false;        // A system message shows.
  bool tools = false;              // The tools show.
  bool tool_calls = false;         // Calls of the assistant show.
  bool tool_results = false;       // Messages of role "tool" show.
  bool takes_parts = false;        // `content` must be a list of parts; else it is a string.
  bool object_arguments = false;   // Arguments of calls are objects; else JSON texts.
  bool generation_prompt = false;  // `add_generation_prompt` changes the end.
};

struct ChatInput {
  // Array of messages as OpenAI writes them: role, content (string, null, absent or text parts),
  // tool_calls (arguments as JSON text or object), tool_call_id, name. "developer" is "system".
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;  // Array of {"type": "function", "function": {...}}, or null.
  nlohmann::ordered_json extra;  // Object of further variables (chat_template_kwargs), or null.
  bool add_generation_prompt = true;
  // The last message is the start of the answer: the text ends with its content, still open.
  // Then add_generation_prompt counts as false.
  bool continue_final_message = false;
  absl::Time now;  // What the template takes for the date, in UTC.
};

class ChatTemplate {
 public:
  // Fails with kInvalidRequest, naming line and column, when the source does not parse.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Create(ChatTemplateSpec spec);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // kInvalidRequest ("chat template, 3:17: ...") with what the template raised or where it failed;
  // also for messages of another shape, for tools where the template has no place for them, and
  // for a final message that cannot be continued.
  absl::StatusOr<std::string> Render(const ChatInput& input) const;

  const ChatTemplateCaps& caps() const { return caps_; }
  const std::string& source() const { return spec_.source; }

 private:
  explicit ChatTemplate(ChatTemplateSpec spec);

  absl::StatusOr<std::string> RenderReady(const nlohmann::ordered_json& messages,
                                          const ChatInput& input) const;

  const ChatTemplateSpec spec_;
  std::unique_ptr<const jinja::Template> main_;
  std::unique_ptr<const jinja::Template> with_tools_;  // Null: `main_` serves tools as well.
  ChatTemplateCaps caps_;
};

// The source of a built-in, for models that bring no template of their own. Fails with
// kInvalidRequest, listing the names there are.
absl::StatusOr<std::string_view> BuiltInChatTemplate(std::string_view name);
std::vector<std::string_view> BuiltInChatTemplateNames();

}  // namespace shardline
