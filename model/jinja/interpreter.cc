// Statements. Expressions: evaluate.cc.

#include "model/jinja/interpreter.h"

#include <optional>
#include <variant>

#include "base/status_macros.h"
#include "model/jinja/format.h"
#include "model/jinja/loop.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {
namespace {

// Keeps a loop's filter from being called once its scope is gone.
class LoopEnd {
 public:
  explicit LoopEnd(Loop* loop) : loop_(*loop) {}
  ~LoopEnd() { loop_.End(); }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  Loop& loop_;
};

NameId FindName(const Tree& tree, std::string_view name) {
  for (size_t i = 0; i < tree.names.size(); ++i) {
    if (tree.names[i] == name) return static_cast<NameId>(i);
  }
  return -1;
}

}  // namespace

absl::Status Interpreter::Run(const ScopePtr& scope, std::string* out) {
  return RunBody(tree_.body, scope, out).status();
}

absl::Status Interpreter::Placed(const Position& at, const absl::Status& status) {
  if (has_place_) return status;
  has_place_ = true;
  const absl::string_view message = status.message();
  return FaultAt(at, std::string_view(message.data(), message.size()));
}

absl::StatusOr<Interpreter::Exit> Interpreter::RunBody(const Body& body, const ScopePtr& scope,
                                                       std::string* out) {
  for (const Statement& statement : body) {
    absl::Status entered = runtime_.meter.Spend(1);
    if (entered.ok()) entered = runtime_.Enter();
    if (!entered.ok()) return Placed(statement.at, entered);
    const absl::StatusOr<Exit> exit = RunStatement(statement, scope, out);
    runtime_.Leave();
    if (!exit.ok()) return Placed(statement.at, exit.status());
    if (*exit != Exit::kEnd) return exit;
  }
  return Exit::kEnd;
}

absl::StatusOr<Interpreter::Exit> Interpreter::RunStatement(const Statement& statement,
                                                            const ScopePtr& scope,
                                                            std::string* out) {
  const auto& what = statement.what;
  if (const auto* write = std::get_if<Write>(&what)) {
    out->append(write->text);
    runtime_.meter.Write(write->text.size());
    return Exit::kEnd;
  }
  if (const auto* print = std::get_if<Print>(&what)) {
    SL_ASSIGN_OR_RETURN(const Value value, Evaluate(print->value, scope));
    SL_RETURN_IF_ERROR(Append(value, out));
    return Exit::kEnd;
  }
  if (const auto* set = std::get_if<Set>(&what)) {
    SL_ASSIGN_OR_RETURN(Value value, Evaluate(set->value, scope));
    SL_RETURN_IF_ERROR(Assign(set->target, std::move(value), scope));
    return Exit::kEnd;
  }
  if (const auto* choice = std::get_if<If>(&what)) return Execute(*choice, scope, out);
  if (const auto* loop = std::get_if<For>(&what)) return Execute(*loop, scope, out);
  if (const auto* block = std::get_if<SetBlock>(&what)) return Execute(*block, scope);
  if (const auto* macro = std::get_if<MacroDefinition>(&what)) {
    scope->Set(macro->name, MacroOf(macro->macro, scope));
    return Exit::kEnd;
  }
  if (const auto* call = std::get_if<CallBlock>(&what)) return Execute(*call, scope, out);
  if (const auto* filter = std::get_if<FilterBlock>(&what)) return Execute(*filter, scope, out);
  if (const auto* with = std::get_if<With>(&what)) return Execute(*with, scope, out);
  if (const auto* scoped = std::get_if<Scoped>(&what)) {
    return RunBody(scoped->body, std::make_shared<Scope>(scope), out);
  }
  return std::holds_alternative<Break>(what) ? Exit::kBreak : Exit::kContinue;
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const If& statement, const ScopePtr& scope,
                                                       std::string* out) {
  for (const If::Branch& branch : statement.branches) {
    if (branch.condition.has_value()) {
      SL_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition, scope));
      if (!IsTrue(condition)) continue;
    }
    return RunBody(branch.body, scope, out);
  }
  return Exit::kEnd;
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const For& statement, const ScopePtr& scope,
                                                       std::string* out) {
  SL_ASSIGN_OR_RETURN(const Value source, Evaluate(statement.items, scope));
  SL_ASSIGN_OR_RETURN(Value items, ItemsOf(runtime_.meter, source));
  Loop::Filter filter;
  if (statement.filter.has_value()) {
    filter = [this, &statement, &scope](const Value& item) -> absl::StatusOr<bool> {
      const auto inner = std::make_shared<Scope>(scope);
      SL_RETURN_IF_ERROR(Assign(statement.target, item, inner));
      SL_ASSIGN_OR_RETURN(const Value passes, Evaluate(*statement.filter, inner));
      return IsTrue(passes);
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(items), std::move(filter));
  const LoopEnd end(loop.get());
  const NameId loop_name = FindName(tree_, "loop");
  bool has_ended_turn = false;  // By its end: Jinja's `else` runs after turns cut short, too.
  while (true) {
    SL_ASSIGN_OR_RETURN(std::optional<Value> item, loop->Advance());
    if (!item.has_value()) break;
    SL_RETURN_IF_ERROR(runtime_.meter.Spend(1));
    const auto inner = std::make_shared<Scope>(scope);
    if (loop_name >= 0) inner->Set(loop_name, Value::Of(loop));
    SL_RETURN_IF_ERROR(Assign(statement.target, *std::move(item), inner));
    SL_ASSIGN_OR_RETURN(const Exit exit, RunBody(statement.body, inner, out));
    if (exit == Exit::kBreak) break;
    has_ended_turn = has_ended_turn || exit == Exit::kEnd;
  }
  if (!has_ended_turn) return RunBody(statement.otherwise, std::make_shared<Scope>(scope), out);
  return Exit::kEnd;
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const With& statement, const ScopePtr& scope,
                                                       std::string* out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, expression] : statement.values) {
    SL_ASSIGN_OR_RETURN(Value value, Evaluate(expression, scope));
    SL_RETURN_IF_ERROR(Assign(target, std::move(value), inner));
  }
  return RunBody(statement.body, inner, out);
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const FilterBlock& statement,
                                                       const ScopePtr& scope, std::string* out) {
  SL_ASSIGN_OR_RETURN(Value text, Capture(statement.body, scope));
  SL_ASSIGN_OR_RETURN(const Value filtered, Filtered(statement.filter, std::move(text), scope));
  SL_RETURN_IF_ERROR(Append(filtered, out));
  return Exit::kEnd;
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const CallBlock& statement,
                                                       const ScopePtr& scope, std::string* out) {
  const Value caller = MacroOf(statement.caller, scope);
  const auto& call = std::get<Call>(statement.call.what);
  SL_ASSIGN_OR_RETURN(const Value text, CallWith(call, scope, &caller));
  SL_RETURN_IF_ERROR(Append(text, out));
  return Exit::kEnd;
}

absl::StatusOr<Interpreter::Exit> Interpreter::Execute(const SetBlock& statement,
                                                       const ScopePtr& scope) {
  SL_ASSIGN_OR_RETURN(Value text, Capture(statement.body, scope));
  if (statement.filter.has_value()) {
    SL_ASSIGN_OR_RETURN(text, Filtered(*statement.filter, std::move(text), scope));
  }
  SL_RETURN_IF_ERROR(Assign(statement.target, std::move(text), scope));
  return Exit::kEnd;
}

absl::StatusOr<Value> Interpreter::Capture(const Body& body, const ScopePtr& scope) {
  std::string text;
  // A block that is captured is no place to break out of a loop: the exit ends it, no more.
  SL_RETURN_IF_ERROR(RunBody(body, std::make_shared<Scope>(scope), &text).status());
  return Value::OfText(&runtime_.meter, std::move(text));
}

absl::StatusOr<Value> Interpreter::Filtered(const Expression& filter, Value text,
                                            const ScopePtr& scope) {
  filtered_.push_back(std::move(text));
  absl::StatusOr<Value> result = Evaluate(filter, scope);
  filtered_.pop_back();
  return result;
}

absl::Status Interpreter::Assign(const Target& target, Value value, const ScopePtr& scope) {
  if (target.is_tuple) {
    SL_ASSIGN_OR_RETURN(const Value items, ItemsOf(runtime_.meter, value));
    const size_t count = items.sequence().items.size();
    if (count != target.parts.size()) {
      return Placed(target.at, Fault({"cannot unpack ", std::to_string(count), " values into ",
                                      std::to_string(target.parts.size()), " names"}));
    }
    for (size_t i = 0; i < count; ++i) {
      SL_RETURN_IF_ERROR(Assign(target.parts[i], items.sequence().items[i], scope));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope->Set(target.name, std::move(value));
    return runtime_.meter.Spend(scope->size() / 16);
  }
  const Value* space = scope->Find(target.name);
  if (space == nullptr || !space->Is(Kind::kNamespace)) {
    return Placed(target.at, Fault({"cannot set an attribute of '",
                                    tree_.names[static_cast<size_t>(target.name)],
                                    "', which is no namespace"}));
  }
  auto& attributes = space->space().attributes;
  SL_RETURN_IF_ERROR(runtime_.meter.Spend(1 + attributes.size() / 16));
  for (auto& [name, old] : attributes) {
    if (name != target.attribute) continue;
    // The old value goes last: its end may come back to this namespace.
    std::swap(old, value);
    return absl::OkStatus();
  }
  attributes.emplace_back(target.attribute, std::move(value));
  return absl::OkStatus();
}

absl::Status Interpreter::Append(const Value& value, std::string* out) {
  if (value.Is(Kind::kText)) {
    runtime_.meter.Write(value.bytes().size());
    SL_RETURN_IF_ERROR(runtime_.meter.Spend(value.bytes().size() / 64));
    out->append(value.bytes());
    return absl::OkStatus();
  }
  SL_RETURN_IF_ERROR(runtime_.meter.Spend(value.extent().weight));
  SL_ASSIGN_OR_RETURN(const std::string text, TextOf(value));
  runtime_.meter.Write(text.size());
  out->append(text);
  return absl::OkStatus();
}

Value Interpreter::MacroOf(const Macro& macro, const ScopePtr& scope) {
  auto callable = std::make_shared<Callable>();
  callable->shown =
      macro.spelled.empty() ? "<Macro anonymous>" : Join({"<Macro '", macro.spelled, "'>"});
  callable->call = [this, &macro, scope](Runtime&, Arguments& arguments) {
    return CallMacro(macro, scope, arguments);
  };
  // The macro lies in the scope that it holds: a ring, which the runtime takes apart.
  if (runtime_.scopes.empty() || runtime_.scopes.back() != scope) {
    constexpr size_t kBytes = 256;
    runtime_.meter.Hold(kBytes);
    runtime_.scopes.push_back(scope);
  }
  return Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const ScopePtr& around,
                                             Arguments& arguments) {
  const auto scope = std::make_shared<Scope>(around);
  SL_RETURN_IF_ERROR(BindParameters(macro, arguments, scope));
  std::string text;
  SL_RETURN_IF_ERROR(RunBody(macro.body, scope, &text).status());
  return Value::OfText(&runtime_.meter, std::move(text));
}

absl::Status Interpreter::BindParameters(const Macro& macro, Arguments& arguments,
                                         const ScopePtr& scope) {
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first != name) continue;
      std::optional<Value> value = std::move(at->second);
      arguments.named.erase(at);
      return value;
    }
    return std::nullopt;
  };
  const size_t given = std::min(arguments.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < given) {
      value = arguments.positional[i];
    } else {
      value = take_named(parameter.spelled);
    }
    if (!value.has_value() && parameter.fallback.has_value()) {
      SL_ASSIGN_OR_RETURN(value, Evaluate(*parameter.fallback, scope));
    }
    if (!value.has_value()) {
      value = Value::Undefined(Join({"parameter '", parameter.spelled, "' was not provided"}));
    }
    scope->Set(parameter.name, *std::move(value));
  }
  if (macro.takes_caller) {
    const std::optional<Value> caller = take_named("caller");
    scope->Set(FindName(tree_, "caller"),
               caller.has_value() ? *caller : Value::Undefined("No caller defined"));
  }
  if (macro.takes_named) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : arguments.named) {
      rest.emplace_back(Value::OfText(&runtime_.meter, name), std::move(value));
    }
    SL_ASSIGN_OR_RETURN(Value named, Value::OfEntries(&runtime_.meter, std::move(rest)));
    scope->Set(FindName(tree_, "kwargs"), std::move(named));
  } else if (!arguments.named.empty()) {
    return Fault(
        {"macro '", macro.spelled, "' takes no argument '", arguments.named.front().first, "'"});
  }
  if (macro.takes_rest) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                            arguments.positional.end());
    scope->Set(FindName(tree_, "varargs"), Value::Tuple(&runtime_.meter, std::move(rest)));
  } else if (arguments.positional.size() > given) {
    return Fault({"macro '", macro.spelled, "' takes at most ",
                  std::to_string(macro.parameters.size()), " arguments"});
  }
  return absl::OkStatus();
}

}  // namespace shardline::jinja
