#include "model/grammar/json_keys.h"

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/grammar/code_points.h"
#include "model/grammar/json_words.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

struct KeyNode {
  std::map<uint32_t, size_t> children;  // By code point; younger than their parent.
  bool is_name = false;
};

// Names that need an escape cannot be spelled without one, so they are not looked at.
std::vector<KeyNode> TrieOf(const std::vector<std::string>& names, const CodePoints& plain) {
  std::vector<KeyNode> nodes(1);
  for (const std::string& name : names) {
    std::vector<uint32_t> spelled;
    bool is_plain = true;
    for (size_t at = 0; at < name.size();) {
      const int32_t code_point = NextCodePoint(name, &at);
      is_plain = is_plain && code_point >= 0 && Contains(plain, static_cast<uint32_t>(code_point));
      spelled.push_back(static_cast<uint32_t>(code_point));
    }
    if (!is_plain) continue;
    size_t node = 0;
    for (const uint32_t code_point : spelled) {
      const auto [it, is_new] = nodes[node].children.try_emplace(code_point, nodes.size());
      node = it->second;
      if (is_new) nodes.emplace_back();
    }
    nodes[node].is_name = true;
  }
  return nodes;
}

}  // namespace

std::string AddJsonKeyBut(const std::vector<std::string>& names, GrammarBuilder* grammar) {
  if (names.empty()) return JsonString(grammar);
  const CodePoints plain = Complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const std::vector<KeyNode> nodes = TrieOf(names, plain);
  std::vector<std::string> rules(nodes.size());  // What makes another name from each node on.
  for (size_t i = nodes.size(); i-- > 0;) {
    std::vector<std::string> ways;
    CodePoints expected;
    for (const auto& [code_point, child] : nodes[i].children) {
      expected.push_back({code_point, code_point});
      ways.push_back(absl::StrCat(GbnfClass({{code_point, code_point}}), " ", rules[child]));
    }
    const CodePoints others = Intersection(plain, Complement(expected));
    ways.push_back(absl::StrCat(GbnfClass(others), " ", GbnfClass(plain), "*"));
    if (!nodes[i].is_name) ways.push_back("\"\"");
    rules[i] = grammar->AddRule("other-key", absl::StrJoin(ways, " | "));
  }
  return grammar->AddRule("key", absl::StrCat("\"\\\"\" ", rules[0], " \"\\\"\""));
}

}  // namespace shardline
