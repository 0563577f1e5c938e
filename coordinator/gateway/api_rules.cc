#include "coordinator/gateway/api_rules.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_builder.h"
#include "model/grammar/json_schema.h"
#include "model/grammar/json_words.h"

namespace shardline {
namespace {

constexpr char kSpace[] = "[ \\n]{0,2}";

ApiError Refusal(const std::string& param, const absl::Status& status) {
  return InvalidValue(param, std::string(status.message()));
}

// The rule that a value of the format matches. REQUIRES: json_object or schema.
ApiResult<std::string> AddFormat(const FormatWish& format, GrammarBuilder* grammar) {
  if (!format.schema) return JsonObject(grammar);
  absl::StatusOr<std::string> rule = AddJsonSchema(*format.schema, format.param, grammar);
  if (!rule.ok()) return Refusal(format.param, rule.status());
  return *std::move(rule);
}

// The arguments of a tool as a rule. Only a strict tool's schema must be one that can be held.
ApiResult<std::string> AddArguments(const ToolWish& tool, size_t index, GrammarBuilder* grammar) {
  Json schema = tool.tools[index]["function"]["parameters"];
  const std::string path = absl::StrCat("tools[", index, "].function.parameters");
  if (!schema.contains("type")) schema["type"] = "object";
  if (schema["type"] != "object") {
    return InvalidValue(path, absl::StrCat(path, " must describe an object"));
  }
  GrammarBuilder with = *grammar;
  absl::StatusOr<std::string> rule = AddJsonSchema(schema, path, &with);
  if (rule.ok()) {
    *grammar = std::move(with);
    return *std::move(rule);
  }
  if (tool.strict[index]) return Refusal(path, rule.status());
  return JsonObject(grammar);
}

// One call of any tool that may be called.
ApiResult<std::string> AddCall(const ToolWish& tool, ToolFormat format, GrammarBuilder* grammar) {
  std::vector<std::string> calls;
  for (size_t i = 0; i < tool.tools.size(); ++i) {
    const Json& name = tool.tools[i]["function"]["name"];
    if (tool.mode == ToolMode::kNamed && name != tool.named) continue;
    const ApiResult<std::string> arguments = AddArguments(tool, i, grammar);
    if (!arguments.ok()) return arguments.error();
    const std::string head = absl::StrCat("{\"name\": ", JsonLine(name), ", \"",
                                          std::string(ArgumentsKey(format)), "\": ");
    calls.push_back(absl::StrCat(GbnfLiteral(head), " ", *arguments, " ", GbnfLiteral("}")));
  }
  return grammar->AddRule("call", absl::StrJoin(calls, " | "));
}

// What follows the mark of the first call.
std::string BehindMark(const std::string& call, const ToolWish& tool, ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kGeneric: {
      const std::string one =
          absl::StrCat(kSpace, " ", call, " ", kSpace, " ", GbnfLiteral(ToolCallEndMark(format)));
      if (!tool.is_parallel) return one;
      return absl::StrCat(one, " (", kSpace, " ", GbnfLiteral(ToolCallMark(format)), " ", one,
                          ")*");
    }
    case ToolFormat::kMistral: {
      const std::string more =
          tool.is_parallel ? absl::StrCat(" (", GbnfLiteral(", "), " ", call, ")*") : "";
      return absl::StrCat(GbnfLiteral("["), " ", call, more, " ", GbnfLiteral("]"));
    }
    case ToolFormat::kLlama3:
    case ToolFormat::kNone:
      return call;
  }
  return call;
}

std::string WithMark(const std::string& behind, ToolFormat format) {
  const std::string_view mark = ToolCallMark(format);
  return mark.empty() ? behind : absl::StrCat(GbnfLiteral(mark), " ", behind);
}

// The grammar, and its trigger, of an answer that may or must call tools.
ApiResult<v1::TextRules> ToolRules(const ApiCall& call, ToolFormat format) {
  v1::TextRules rules;
  GrammarBuilder grammar;
  const ApiResult<std::string> one = AddCall(call.tool, format, &grammar);
  if (!one.ok()) return one.error();
  const std::string behind = BehindMark(*one, call.tool, format);
  if (call.tool.mode != ToolMode::kAuto) {
    rules.set_grammar(grammar.Build(WithMark(behind, format)));
    return rules;
  }
  if (call.format.any()) {
    if (!call.format.grammar.empty()) {
      return InvalidValue("grammar", "grammar beside `tools` needs tool_choice: \"none\"");
    }
    const ApiResult<std::string> answer = AddFormat(call.format, &grammar);
    if (!answer.ok()) return answer.error();
    rules.set_grammar(grammar.Build(absl::StrCat(WithMark(behind, format), " | ", *answer)));
    return rules;
  }
  // Without a mark nothing tells a call from a text that begins like one.
  const std::string_view mark = ToolCallMark(format);
  if (mark.empty()) return rules;
  rules.set_grammar(grammar.Build(behind));
  rules.set_trigger(std::string(mark));
  return rules;
}

ApiResult<v1::TextRules> FormatRules(const FormatWish& format) {
  v1::TextRules rules;
  if (!format.any()) return rules;
  if (!format.grammar.empty()) {
    rules.set_grammar(format.grammar);
    return rules;
  }
  GrammarBuilder grammar;
  const ApiResult<std::string> rule = AddFormat(format, &grammar);
  if (!rule.ok()) return rule.error();
  rules.set_grammar(grammar.Build(*rule));
  return rules;
}

}  // namespace

ApiResult<v1::TextRules> RulesOf(const ApiCall& call, ToolFormat format) {
  const bool may_call = format != ToolFormat::kNone;
  ApiResult<v1::TextRules> rules = may_call ? ToolRules(call, format) : FormatRules(call.format);
  if (!rules.ok()) return rules;
  if (!rules->grammar().empty()) {
    // As the head will: what it would refuse is told now.
    const auto parsed = Grammar::Parse(rules->grammar(), rules->trigger());
    const std::string param = call.format.any() ? call.format.param : "tools";
    if (!parsed.ok()) return Refusal(param, parsed.status());
  }
  for (const std::string& text : call.stop_texts) rules->add_stop_texts(text);
  rules->set_new_tokens_min(call.new_tokens_min);
  return rules;
}

}  // namespace shardline
