// Renders templates for make_jinja_golden.py: a JSON object a line in, one out.
//
//   {"template": "...", "variables": {...}, "now": seconds since 1970}
//   {"text": "..."} or {"error": "..."}

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "model/jinja/template.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> Render(const Json& request) {
  auto parsed = jinja::Template::Parse(request["template"].get_ref<const std::string&>());
  if (!parsed.ok()) return parsed.status();
  jinja::Variables variables;
  for (const auto& [name, value] : request["variables"].items()) {
    variables.emplace_back(name, &value);
  }
  return (*parsed)->Render(variables, absl::FromUnixSeconds(request["now"].get<int64_t>()));
}

}  // namespace
}  // namespace shardline

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::ordered_json::parse(line);
    const absl::StatusOr<std::string> text = shardline::Render(request);
    nlohmann::ordered_json answer;
    if (text.ok()) {
      answer["text"] = *text;
    } else {
      answer["error"] = std::string(text.status().message());
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
  return 0;
}
