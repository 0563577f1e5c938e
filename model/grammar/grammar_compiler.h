#pragma once

// Makes a Grammar's automaton of its tree. For grammar.cc alone.

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/grammar/gbnf_syntax.h"
#include "model/grammar/grammar.h"

namespace shardline {

class GrammarCompiler {
 public:
  explicit GrammarCompiler(GbnfTree tree) : tree_(std::move(tree)) {}

  absl::StatusOr<std::shared_ptr<const Grammar>> Compile(std::string_view trigger);

 private:
  using State = Grammar::State;
  using StateId = Grammar::StateId;
  using Kind = Grammar::StateKind;
  // States that each state leads to or hangs on, turned round.
  struct Reversed {
    std::vector<uint32_t> begin;  // [states + 1]
    std::vector<StateId> from;
    std::vector<StateId> start_of;  // Of each rule.
  };

  // All give the first state of what is said before `next`, and 0 once the states run out.
  StateId Emit(size_t node, StateId next);
  StateId EmitLiteral(std::string_view bytes, StateId next);
  StateId EmitClass(const CodePoints& set, StateId next);
  StateId EmitRepeat(const GbnfNode& repeat, StateId next);
  StateId EmitTrigger(std::string_view trigger, StateId next);
  StateId AddBytes(const std::vector<Grammar::Edge>& edges);
  StateId AddFork(const std::vector<StateId>& targets);
  StateId Add(const State& state);
  void SetFork(StateId state, const std::vector<StateId>& targets);
  // What is repeated often becomes a rule, so that a repetition costs one state.
  size_t Hoisted(size_t node);

  absl::Status CheckLeftRecursion(const std::vector<bool>& nullable) const;
  // States from which their rule can end; without reading, or at all.
  std::vector<bool> CanFinish(const Reversed& reversed, bool may_read) const;
  Reversed Reverse() const;
  void MarkTailsAndDead(const std::vector<bool>& is_alive);
  void FindClasses();

  GbnfTree tree_;
  std::unique_ptr<Grammar> grammar_;
  std::vector<StateId> starts_;       // Of each rule.
  std::map<size_t, size_t> hoisted_;  // Node to rule.
  bool is_full_ = false;
};

}  // namespace shardline
