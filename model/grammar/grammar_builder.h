#pragma once

// Puts a GBNF grammar together, rule by rule.
//
//   GrammarBuilder grammar;
//   auto arguments = AddJsonSchema(schema, "tools[0].function.parameters", &grammar);
//   auto call = grammar.AddRule("call", GbnfLiteral("{\"name\":\"f\",\"arguments\":") + " " +
//                                       *arguments + " " + GbnfLiteral("}"));
//   std::string gbnf = grammar.Build(call + " | " + other);
//
// Not thread-safe. Knows nothing of what rules say.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace shardline {

// `text` as a GBNF literal, quotes included. Bytes that are no UTF-8 are escaped one by one, and
// so match nothing that is.
std::string GbnfLiteral(std::string_view text);

class GrammarBuilder {
 public:
  // A new rule; its name is `hint`, cleaned, or that with a number where it is taken.
  std::string AddRule(std::string_view hint, std::string body);

  // A rule that is added once, whoever asks first: `name` is its own. Bodies are equal.
  std::string AddShared(std::string_view name, std::string_view body);

  // A name whose body comes later, for rules that refer to each other.
  std::string Reserve(std::string_view hint);
  // REQUIRES: Reserve gave `name`, and it has no body yet.
  void Define(std::string_view name, std::string body);

  // Of all bodies so far.
  size_t bytes() const { return bytes_; }

  // The whole grammar. REQUIRES: every name has a body.
  std::string Build(std::string_view root) const;

 private:
  std::vector<std::pair<std::string, std::string>> rules_;  // Name and body, in order.
  absl::flat_hash_map<std::string, size_t> indexes_;
  size_t bytes_ = 0;
};

}  // namespace shardline
