#pragma once

// GBNF text as a tree: what grammar.h compiles.
//
// Names are resolved, nothing else is judged. Trees are shallow (kGbnfNestingMax) and no larger
// than the text; any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/grammar/code_points.h"

namespace shardline {

inline constexpr int kGbnfNestingMax = 64;

struct GbnfNode {
  enum class Kind : uint8_t {
    kLiteral,   // `bytes`.
    kClass,     // One code point of `set`.
    kRule,      // Rule number `rule`.
    kSequence,  // All of `children`, in order.
    kChoice,    // One of them.
    kRepeat,    // The child, `min` to `max` times.
  };
  static constexpr uint32_t kEndless = UINT32_MAX;

  Kind kind = Kind::kSequence;
  std::string bytes;
  CodePoints set;
  size_t rule = 0;
  std::vector<size_t> children;  // Indexes of nodes.
  uint32_t min = 0;
  uint32_t max = 0;
};

struct GbnfRule {
  std::string name;
  size_t body = 0;  // Index of a node.
};

struct GbnfTree {
  std::vector<GbnfNode> nodes;
  std::vector<GbnfRule> rules;
  size_t root = 0;  // Index of the rule.
};

// kInvalidRequest with line:column.
absl::StatusOr<GbnfTree> ParseGbnf(std::string_view text);

}  // namespace shardline
