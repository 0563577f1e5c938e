#include "model/grammar/grammar_compiler.h"

#include <algorithm>
#include <bitset>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr uint32_t kCopiesMax = 4;  // Of what is repeated, before it becomes a rule.

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat("grammar: ", message));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCompiler::Compile(std::string_view trigger) {
  grammar_.reset(new Grammar);
  // Calls name their rule by its number until all are there.
  for (size_t rule = 0; rule < tree_.rules.size(); ++rule) {
    starts_.push_back(Emit(tree_.rules[rule].body, Add({.kind = Kind::kFinal})));
    if (is_full_) break;
  }
  StateId start = 0;
  if (!is_full_) start = starts_[tree_.root];
  if (!trigger.empty()) start = EmitTrigger(trigger, start);
  if (is_full_) return Invalid(absl::StrCat("it needs more than ", kGrammarStatesMax, " states"));
  for (State& state : grammar_->states_) {
    if (state.kind == Kind::kCall) state.begin = starts_[state.begin];
  }
  grammar_->start_ = start;
  const Reversed reversed = Reverse();
  SL_RETURN_IF_ERROR(CheckLeftRecursion(CanFinish(reversed, /*may_read=*/false)));
  const std::vector<bool> is_alive = CanFinish(reversed, /*may_read=*/true);
  if (!is_alive[starts_[tree_.root]]) return Invalid("no text of rule 'root' ever ends");
  MarkTailsAndDead(is_alive);
  FindClasses();
  return std::shared_ptr<const Grammar>(std::move(grammar_));
}

Grammar::StateId GrammarCompiler::Add(const State& state) {
  if (grammar_->states_.size() >= kGrammarStatesMax) is_full_ = true;
  if (is_full_) return 0;
  grammar_->states_.push_back(state);
  return static_cast<StateId>(grammar_->states_.size() - 1);
}

Grammar::StateId GrammarCompiler::AddBytes(const std::vector<Grammar::Edge>& edges) {
  std::vector<Grammar::Edge>& all = grammar_->edges_;
  if (all.size() + edges.size() > 2 * kGrammarStatesMax) is_full_ = true;
  if (is_full_) return 0;
  const auto begin = static_cast<uint32_t>(all.size());
  all.insert(all.end(), edges.begin(), edges.end());
  return Add({.kind = Kind::kBytes, .begin = begin, .end = static_cast<uint32_t>(all.size())});
}

Grammar::StateId GrammarCompiler::AddFork(const std::vector<StateId>& targets) {
  const StateId fork = Add({.kind = Kind::kFork});
  SetFork(fork, targets);
  return fork;
}

void GrammarCompiler::SetFork(StateId state, const std::vector<StateId>& targets) {
  std::vector<StateId>& all = grammar_->targets_;
  if (all.size() + targets.size() > 2 * kGrammarStatesMax) is_full_ = true;
  if (is_full_) return;
  grammar_->states_[state].begin = static_cast<uint32_t>(all.size());
  all.insert(all.end(), targets.begin(), targets.end());
  grammar_->states_[state].end = static_cast<uint32_t>(all.size());
}

Grammar::StateId GrammarCompiler::Emit(size_t index, StateId next) {
  if (is_full_) return 0;
  // Hoisting adds nodes, so none is held by reference over a call that may do it.
  switch (tree_.nodes[index].kind) {
    case GbnfNode::Kind::kLiteral:
      return EmitLiteral(tree_.nodes[index].bytes, next);
    case GbnfNode::Kind::kClass:
      return EmitClass(tree_.nodes[index].set, next);
    case GbnfNode::Kind::kRule:
      return Add({.kind = Kind::kCall,
                  .begin = static_cast<uint32_t>(tree_.nodes[index].rule),
                  .end = next});
    case GbnfNode::Kind::kSequence: {
      const std::vector<size_t> children = tree_.nodes[index].children;
      for (size_t i = children.size(); i-- > 0;) next = Emit(children[i], next);
      return next;
    }
    case GbnfNode::Kind::kChoice: {
      const std::vector<size_t> children = tree_.nodes[index].children;
      std::vector<StateId> targets;
      targets.reserve(children.size());
      for (const size_t child : children) targets.push_back(Emit(child, next));
      return AddFork(targets);
    }
    case GbnfNode::Kind::kRepeat:
      return EmitRepeat(GbnfNode(tree_.nodes[index]), next);
  }
  return 0;
}

Grammar::StateId GrammarCompiler::EmitLiteral(std::string_view bytes, StateId next) {
  for (size_t i = bytes.size(); i-- > 0 && !is_full_;) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    next = AddBytes({{.low = byte, .high = byte, .target = next}});
  }
  return next;
}

Grammar::StateId GrammarCompiler::EmitClass(const CodePoints& set, StateId next) {
  std::map<std::pair<uint32_t, StateId>, StateId> tails;  // By byte range and what follows it.
  std::vector<Grammar::Edge> first;
  for (const ByteSequence& sequence : Utf8SequencesOf(set)) {
    StateId tail = next;
    for (size_t i = sequence.size(); i-- > 1;) {
      const ByteRange range = sequence[i];
      const auto key = std::pair<uint32_t, StateId>(range.low << 8 | range.high, tail);
      const auto [it, is_new] = tails.try_emplace(key);
      if (is_new) {
        it->second = AddBytes({{.low = range.low, .high = range.high, .target = tail}});
      }
      tail = it->second;
    }
    first.push_back({.low = sequence[0].low, .high = sequence[0].high, .target = tail});
  }
  return AddBytes(first);
}

Grammar::StateId GrammarCompiler::EmitRepeat(const GbnfNode& repeat, StateId next) {
  size_t child = repeat.children.front();
  const bool is_endless = repeat.max == GbnfNode::kEndless;
  if ((is_endless ? repeat.min : repeat.max) > kCopiesMax) child = Hoisted(child);
  StateId at = next;
  if (is_endless) {
    at = Add({.kind = Kind::kFork});
    const StateId body = Emit(child, at);
    SetFork(at, {body, next});
  }
  for (uint32_t i = repeat.min; !is_endless && i < repeat.max && !is_full_; ++i) {
    at = AddFork({Emit(child, at), next});
  }
  for (uint32_t i = 0; i < repeat.min && !is_full_; ++i) at = Emit(child, at);
  return at;
}

size_t GrammarCompiler::Hoisted(size_t node) {
  if (tree_.nodes[node].kind == GbnfNode::Kind::kRule) return node;
  const auto [it, is_new] = hoisted_.try_emplace(node);
  if (is_new) {
    it->second = tree_.nodes.size();
    tree_.nodes.push_back({.kind = GbnfNode::Kind::kRule, .rule = tree_.rules.size()});
    tree_.rules.push_back({.name = "a repeated group", .body = node});
  }
  return it->second;
}

// The automaton that knows the longest end of the text that begins the trigger, byte by byte.
Grammar::StateId GrammarCompiler::EmitTrigger(std::string_view trigger, StateId next) {
  const size_t count = trigger.size();
  const auto reading = static_cast<StateId>(grammar_->states_.size());
  const auto waiting = static_cast<StateId>(reading + count);
  const StateId final = static_cast<StateId>(waiting + count);
  std::vector<std::array<size_t, 256>> matched(count);  // Bytes of the trigger, after each byte.
  size_t fallback = 0;  // What is matched of the text less its first byte.
  for (size_t i = 0; i < count; ++i) {
    matched[i] = i == 0 ? std::array<size_t, 256>{} : matched[fallback];
    const auto byte = static_cast<uint8_t>(trigger[i]);
    if (i > 0) fallback = matched[fallback][byte];
    matched[i][byte] = i + 1;
  }
  for (size_t i = 0; i < count && !is_full_; ++i) {
    std::vector<Grammar::Edge> edges;
    for (int byte = 0; byte < 256; ++byte) {
      const size_t now = matched[i][static_cast<size_t>(byte)];
      const StateId target = now == count ? next : static_cast<StateId>(waiting + now);
      const auto value = static_cast<uint8_t>(byte);
      if (!edges.empty() && edges.back().target == target) {
        edges.back().high = value;
      } else {
        edges.push_back({.low = value, .high = value, .target = target});
      }
    }
    AddBytes(edges);
  }
  for (size_t i = 0; i < count && !is_full_; ++i) {
    AddFork({static_cast<StateId>(reading + i), final});
  }
  Add({.kind = Kind::kFinal});
  grammar_->trigger_begin_ = reading;
  grammar_->trigger_end_ = waiting;
  return waiting;
}

GrammarCompiler::Reversed GrammarCompiler::Reverse() const {
  const std::vector<State>& states = grammar_->states_;
  Reversed out;
  out.begin.assign(states.size() + 1, 0);
  const auto for_each_link = [&](auto&& visit) {
    for (StateId id = 0; id < states.size(); ++id) {
      const State& state = states[id];
      if (state.kind == Kind::kBytes) {
        for (const Grammar::Edge& edge : grammar_->EdgesOf(state)) visit(id, edge.target);
      } else if (state.kind == Kind::kFork) {
        for (const StateId target : grammar_->TargetsOf(state)) visit(id, target);
      } else if (state.kind == Kind::kCall) {
        visit(id, state.begin);
        visit(id, state.end);
      }
    }
  };
  for_each_link([&](StateId, StateId to) { ++out.begin[to + 1]; });
  for (size_t i = 0; i < states.size(); ++i) out.begin[i + 1] += out.begin[i];
  out.from.resize(out.begin.back());
  std::vector<uint32_t> filled = out.begin;
  for_each_link([&](StateId from, StateId to) { out.from[filled[to]++] = from; });
  return out;
}

std::vector<bool> GrammarCompiler::CanFinish(const Reversed& reversed, bool may_read) const {
  const std::vector<State>& states = grammar_->states_;
  std::vector<bool> can(states.size(), false);
  std::vector<StateId> todo;
  for (StateId id = 0; id < states.size(); ++id) {
    if (states[id].kind != Kind::kFinal) continue;
    can[id] = true;
    todo.push_back(id);
  }
  while (!todo.empty()) {
    const StateId to = todo.back();
    todo.pop_back();
    for (uint32_t i = reversed.begin[to]; i < reversed.begin[to + 1]; ++i) {
      const StateId from = reversed.from[i];
      const State& state = states[from];
      if (can[from] || (state.kind == Kind::kBytes && !may_read)) continue;
      if (state.kind == Kind::kCall && !(can[state.begin] && can[state.end])) continue;
      can[from] = true;
      todo.push_back(from);
    }
  }
  return can;
}

// A rule that may call itself before it has read anything would do so without end.
absl::Status GrammarCompiler::CheckLeftRecursion(const std::vector<bool>& nullable) const {
  const std::vector<State>& states = grammar_->states_;
  enum class Colour : uint8_t { kWhite, kGrey, kBlack };
  std::vector<size_t> rule_of(states.size(), SIZE_MAX);  // Of first states.
  for (size_t rule = starts_.size(); rule-- > 0;) rule_of[starts_[rule]] = rule;
  std::vector<uint64_t> seen(states.size(), UINT64_MAX);  // By which rule's search.
  const auto called_first = [&](size_t rule) {
    std::vector<size_t> out;
    std::vector<StateId> todo = {starts_[rule]};
    while (!todo.empty()) {
      const StateId id = todo.back();
      todo.pop_back();
      if (std::exchange(seen[id], rule) == rule) continue;
      const State& state = states[id];
      if (state.kind == Kind::kFork) {
        for (const StateId target : grammar_->TargetsOf(state)) todo.push_back(target);
      } else if (state.kind == Kind::kCall) {
        out.push_back(rule_of[state.begin]);
        if (nullable[state.begin]) todo.push_back(state.end);
      }
    }
    return out;
  };
  struct Frame {
    size_t rule;
    std::vector<size_t> callees;
    size_t next = 0;
  };
  std::vector<Colour> colours(starts_.size(), Colour::kWhite);
  for (size_t root = 0; root < starts_.size(); ++root) {
    if (colours[root] != Colour::kWhite) continue;
    std::vector<Frame> path;
    path.push_back({.rule = root, .callees = called_first(root)});
    colours[root] = Colour::kGrey;
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.next == frame.callees.size()) {
        colours[frame.rule] = Colour::kBlack;
        path.pop_back();
        continue;
      }
      const size_t callee = frame.callees[frame.next++];
      if (colours[callee] == Colour::kGrey) {
        return Invalid(absl::StrCat("rule '", tree_.rules[callee].name,
                                    "' is left-recursive: it begins with itself"));
      }
      if (colours[callee] == Colour::kBlack) continue;
      colours[callee] = Colour::kGrey;
      path.push_back({.rule = callee, .callees = called_first(callee)});
    }
  }
  return absl::OkStatus();
}

void GrammarCompiler::MarkTailsAndDead(const std::vector<bool>& is_alive) {
  std::vector<State>& states = grammar_->states_;
  for (StateId id = 0; id < states.size(); ++id) {
    State& state = states[id];
    if (!is_alive[id]) state = {.kind = Kind::kDead};
  }
  for (State& state : states) {
    if (state.kind == Kind::kCall) state.is_tail = states[state.end].kind == Kind::kFinal;
  }
}

void GrammarCompiler::FindClasses() {
  std::bitset<257> is_first;
  for (const Grammar::Edge& edge : grammar_->edges_) {
    is_first.set(edge.low);
    is_first.set(static_cast<size_t>(edge.high) + 1);
  }
  uint32_t count = 1;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && is_first.test(byte)) ++count;
    grammar_->classes_[byte] = static_cast<uint8_t>(count - 1);
  }
  grammar_->class_count_ = count;
}

}  // namespace shardline
