#pragma once

// Puts a GBNF grammar together, rule by rule.
//
//   GrammarBuilder grammar;
//   SL_ASSIGN_OR_RETURN(const std::string arguments, AddJsonSchema(schema, "parameters",
//   &grammar)); const std::string call = grammar.AddRule(
//       "call", GbnfLiteral("{\"name\": \"f\", \"arguments\": ") + " " + arguments + " \"}\"");
//   const std::string gbnf = grammar.Build(call + " | " + other);
//
// Knows nothing of what rules say. Not thread-safe.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/grammar/code_points.h"

namespace shardline {

// `text` as a literal, quotes included. Bytes that are no UTF-8 become U+FFFD.
std::string GbnfLiteral(std::string_view text);

// `set` as a class, brackets included.
std::string GbnfClass(const CodePoints& set);

class GrammarBuilder {
 public:
  // A new rule; its name, which is `hint`, or like it where that is taken or no name.
  std::string AddRule(std::string_view hint, std::string body);

  // A rule that is there once, whoever asks first; its name. REQUIRES: always the same body.
  std::string AddShared(std::string_view key, std::string_view body);
  // The same in two steps, for rules that call each other.
  std::optional<std::string> FindShared(std::string_view key) const;
  std::string ReserveShared(std::string_view key);  // REQUIRES: FindShared has nothing.

  // A name whose body comes later, for rules that call each other.
  std::string Reserve(std::string_view hint);
  // REQUIRES: Reserve gave `name`, and it has no body yet.
  void Define(std::string_view name, std::string body);

  // Of all rules so far.
  size_t bytes() const { return bytes_; }

  // The whole grammar: a text is `root`, what a rule may hold. REQUIRES: every name has a body.
  std::string Build(std::string_view root) const;

 private:
  struct Rule {
    std::string name;
    std::string body;
  };

  std::vector<Rule> rules_;
  absl::flat_hash_map<std::string, size_t> indexes_;
  absl::flat_hash_map<std::string, size_t> repeats_;      // Of hints.
  absl::flat_hash_map<std::string, std::string> shared_;  // Key to name.
  size_t bytes_ = 0;
};

}  // namespace shardline
