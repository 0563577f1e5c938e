// Feeds the engine any template: it parses or is refused, renders or fails, within its limits.
//
// What renders, renders to the same UTF-8 twice.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/check.h"
#include "model/jinja/template.h"
#include "model/jinja/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardline;  // NOLINT: the entry point must be global.
  using Json = nlohmann::ordered_json;
  static const auto* const messages = new Json(Json::parse(
      R"([{"role": "system", "content": "Be\nbrief."}, {"role": "user", "content": "日本 x"},
          {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
          {"role": "tool", "content": "3.5"}])"));
  static const auto* const tools = new Json(Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])"));
  constexpr jinja::Limits kLimits = {.steps_max = 100'000,
                                     .bytes_max = size_t{4} << 20,
                                     .output_bytes_max = size_t{1} << 20,
                                     .depth_max = 200};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return 0;
  const jinja::Variables variables = {{"messages", messages}, {"tools", tools}};
  const auto text = (*parsed)->Render(variables, absl::UnixEpoch(), kLimits);
  const auto again = (*parsed)->Render(variables, absl::UnixEpoch(), kLimits);
  SL_CHECK(text.ok() == again.ok());
  if (!text.ok()) return 0;
  SL_CHECK(*text == *again);
  SL_CHECK(jinja::IsUtf8(*text));
  return 0;
}
