// The built-in templates, for models that bring none: the plain conversation of a few families.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "model/chat_template.h"

namespace shardline {
namespace {

constexpr char kChatml[] = R"jinja(
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
)jinja";

constexpr char kLlama2[] = R"jinja(
{%- set ns = namespace(system="") -%}
{%- for message in messages -%}
  {%- if message.role == "system" -%}
    {%- set ns.system = message.content -%}
  {%- elif message.role == "user" -%}
    {{- bos_token ~ "[INST] " -}}
    {%- if ns.system -%}
      {{- "<<SYS>>\n" ~ ns.system ~ "\n<</SYS>>\n\n" -}}
      {%- set ns.system = "" -%}
    {%- endif -%}
    {{- message.content | trim ~ " [/INST]" -}}
  {%- elif message.role == "assistant" -%}
    {{- " " ~ message.content | trim ~ " " ~ eos_token -}}
  {%- else -%}
    {{- raise_exception("unknown role: " ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr char kLlama3[] = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {{- "<|start_header_id|>" ~ message.role ~ "<|end_header_id|>\n\n" -}}
  {{- message.content | trim ~ "<|eot_id|>" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|start_header_id|>assistant<|end_header_id|>\n\n" -}}
{%- endif -%}
)jinja";

constexpr char kGemma[] = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role not in ["user", "assistant"] -%}
    {{- raise_exception("unknown role: " ~ message.role) -}}
  {%- endif -%}
  {%- set role = "model" if message.role == "assistant" else message.role -%}
  {{- "<start_of_turn>" ~ role ~ "\n" ~ message.content | trim ~ "<end_of_turn>\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<start_of_turn>model\n" -}}
{%- endif -%}
)jinja";

constexpr char kMistral[] = R"jinja(
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == "user" -%}
    {{- "[INST] " ~ message.content ~ " [/INST]" -}}
  {%- elif message.role == "assistant" -%}
    {{- " " ~ message.content | trim ~ eos_token -}}
  {%- else -%}
    {{- raise_exception("unknown role: " ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr char kZephyr[] = R"jinja(
{%- for message in messages -%}
  {{- "<|" ~ message.role ~ "|>\n" ~ message.content ~ eos_token ~ "\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|assistant|>\n" -}}
{%- endif -%}
)jinja";

constexpr std::pair<std::string_view, std::string_view> kBuiltIns[] = {
    {"chatml", kChatml}, {"gemma", kGemma},     {"llama2", kLlama2},
    {"llama3", kLlama3}, {"mistral", kMistral}, {"zephyr", kZephyr}};

}  // namespace

std::vector<std::string_view> BuiltInChatTemplateNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, source] : kBuiltIns) names.push_back(name);
  return names;
}

absl::StatusOr<std::string_view> BuiltInChatTemplate(std::string_view wanted) {
  std::string known;
  for (const auto& [name, source] : kBuiltIns) {
    if (name == wanted) return source;
    if (!known.empty()) known += ", ";
    known += name;
  }
  return MakeFailure(
      FailureKind::kInvalidRequest,
      "no built-in chat template is named '" + std::string(wanted) + "'; there are " + known);
}

}  // namespace shardline
