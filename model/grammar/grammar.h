#pragma once

// What a text may be: a GBNF grammar, compiled to an automaton over the bytes of UTF-8.
//
// GBNF: `name ::= alternatives`, one of them `root`; literals "…" and classes […] with the escapes
// \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; `.` for any character; groups; `* + ? {m} {m,}
// {m,n}`; `#` comments. Classes are of code points, ranges and ^ included.
//
// The automaton is a set of rules. A state reads a byte, forks, calls a rule or ends its own, so
// what is left to say is a state and a stack of states to come back to (grammar_walk.h). Loops are
// loops, never recursion, and a call in the last place pushes nothing: depth is that of the text's
// own nesting. From every state that is kept the text can be completed.
//
// Immutable, any thread. Made from foreign text: all sizes have limits, nothing recurses by them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace shardline {

inline constexpr size_t kGrammarBytesMax = 256 << 10;
inline constexpr size_t kGrammarTriggerBytesMax = 256;
inline constexpr uint32_t kGrammarStatesMax = 1 << 18;

class Grammar {
 public:
  using StateId = uint32_t;

  enum class StateKind : uint8_t {
    kBytes,  // Reads one byte along one of its edges.
    kFork,   // Goes on as each of its targets.
    kCall,   // Runs a rule, then goes on at `next`.
    kFinal,  // Its rule is over.
    kDead,   // No text can be completed from here.
  };
  struct Edge {
    uint8_t low;  // Both included.
    uint8_t high;
    StateId target;
  };
  struct State {
    StateKind kind = StateKind::kFinal;
    bool is_tail = false;  // kCall: nothing is left to do at `next`.
    uint32_t begin = 0;    // kBytes: of edges; kFork: of targets; kCall: the rule's first state.
    uint32_t end = 0;      // kBytes, kFork: behind the last one; kCall: `next`.
  };

  // With a trigger any text goes, and may end, until the trigger has been in it; right behind its
  // first occurrence the grammar begins. kInvalidRequest with line:column for what is no GBNF, a
  // rule that is missing or left-recursive, a root that can never end, or a size beyond the limits.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Parse(std::string_view gbnf,
                                                              std::string_view trigger = {});

  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  StateId start() const { return start_; }
  const State& state(StateId id) const { return states_[id]; }
  size_t state_count() const { return states_.size(); }
  std::span<const Edge> EdgesOf(const State& state) const;       // REQUIRES: kBytes.
  std::span<const StateId> TargetsOf(const State& state) const;  // REQUIRES: kFork.

  // True for a state that still waits for the trigger.
  bool AwaitsTrigger(StateId id) const { return id >= trigger_begin_ && id < trigger_end_; }

  // Bytes that no edge tells apart are one class.
  uint8_t ClassOf(uint8_t byte) const { return classes_[byte]; }
  uint32_t class_count() const { return class_count_; }

 private:
  friend class GrammarCompiler;
  Grammar() = default;

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<StateId> targets_;
  StateId start_ = 0;
  StateId trigger_begin_ = 0;
  StateId trigger_end_ = 0;
  std::array<uint8_t, 256> classes_ = {};
  uint32_t class_count_ = 0;
};

}  // namespace shardline
