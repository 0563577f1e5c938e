#pragma once

// Walks a tree and writes what it says.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/arguments.h"
#include "model/jinja/ast.h"
#include "model/jinja/runtime.h"
#include "model/jinja/scope.h"

namespace shardline::jinja {

// For one rendering. Errors say where they happened ("3:17: ...").
class Interpreter {
 public:
  // Both outlive this.
  Interpreter(const Tree* tree, Runtime* runtime) : tree_(*tree), runtime_(*runtime) {}

  absl::Status Run(const std::shared_ptr<Scope>& scope, std::string* out);

 private:
  // How a body was left.
  enum class Exit { kEnd, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  absl::StatusOr<Exit> RunBody(const Body& body, const ScopePtr& scope, std::string* out);
  absl::StatusOr<Exit> RunStatement(const Statement& statement, const ScopePtr& scope,
                                    std::string* out);
  absl::StatusOr<Exit> Execute(const If& statement, const ScopePtr& scope, std::string* out);
  absl::StatusOr<Exit> Execute(const For& statement, const ScopePtr& scope, std::string* out);
  absl::StatusOr<Exit> Execute(const With& statement, const ScopePtr& scope, std::string* out);
  absl::StatusOr<Exit> Execute(const FilterBlock& statement, const ScopePtr& scope,
                               std::string* out);
  absl::StatusOr<Exit> Execute(const CallBlock& statement, const ScopePtr& scope, std::string* out);
  absl::StatusOr<Exit> Execute(const SetBlock& statement, const ScopePtr& scope);

  // The text of a body that runs in a scope of its own.
  absl::StatusOr<Value> Capture(const Body& body, const ScopePtr& scope);
  absl::StatusOr<Value> Filtered(const Expression& filter, Value text, const ScopePtr& scope);
  absl::Status Assign(const Target& target, Value value, const ScopePtr& scope);
  absl::Status Append(const Value& value, std::string* out);

  absl::StatusOr<Value> Evaluate(const Expression& expression, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Constant& constant, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Name& name, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ListOf& list, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const DictOf& dict, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Attribute& attribute, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Item& item, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Slice& slice, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Call& call, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Filter& filter, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Test& test, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Negation& negation, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Plus& plus, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Not& negated, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Both& both, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Either& either, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Binary& binary, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Concat& concat, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Compare& compare, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const Choice& choice, const ScopePtr& scope);

  absl::StatusOr<Arguments> EvaluateAll(const ArgumentList& list, const ScopePtr& scope);
  // `extra` is the caller of a call block, null otherwise.
  absl::StatusOr<Value> CallWith(const Call& call, const ScopePtr& scope, const Value* extra);
  absl::StatusOr<bool> Holds(Comparison comparison, const Value& left, const Value& right);

  Value MacroOf(const Macro& macro, const ScopePtr& scope);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const ScopePtr& around, Arguments& arguments);
  absl::Status BindParameters(const Macro& macro, Arguments& arguments, const ScopePtr& scope);

  // `status` with its place; the innermost place that is known wins.
  absl::Status Placed(const Position& at, const absl::Status& status);

  const Tree& tree_;
  Runtime& runtime_;
  std::vector<Value> filtered_;  // Texts of filter blocks that wait for their filter.
  bool has_place_ = false;       // The error on its way up says where it happened.
};

}  // namespace shardline::jinja
