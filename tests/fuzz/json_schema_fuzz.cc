// Makes a grammar of any JSON schema, and a text of the grammar.
//
// The input is a schema, a zero byte, and choices. Nothing breaks; a grammar that is made compiles;
// and a text that the choices lead to, once it may end, is JSON.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"
#include "model/grammar/json_schema.h"

namespace shardline {
namespace {

constexpr size_t kTextBytesMax = 300;

void FollowChoices(const std::string& gbnf, std::string_view choices) {
  const auto grammar = Grammar::Parse(gbnf);
  SL_CHECK(grammar.ok(), gbnf);
  GrammarWalk walk(*grammar);
  GrammarWalk::Place place = walk.start();
  std::string text;
  for (size_t i = 0; !choices.empty() && i < kTextBytesMax; ++i) {
    // The first byte that goes on, from the chosen one on.
    auto byte = static_cast<uint8_t>(choices[i % choices.size()]);
    GrammarWalk::Place next = GrammarWalk::kNowhere;
    for (int tried = 0; tried < 256 && next == GrammarWalk::kNowhere; ++tried) {
      next = walk.Next(place, byte);
      if (next == GrammarWalk::kNowhere) ++byte;
    }
    if (next == GrammarWalk::kNowhere) {
      SL_CHECK(walk.met_limit() || walk.MustEnd(place), gbnf);
      return;
    }
    text.push_back(static_cast<char>(byte));
    place = next;
    if (walk.CanEnd(place)) SL_CHECK(nlohmann::json::accept(text), text);
  }
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto schema = nlohmann::ordered_json::parse(input.substr(0, end), nullptr,
                                                    /*allow_exceptions=*/false);
  if (schema.is_discarded()) return 0;
  const auto gbnf = shardline::GrammarOfJsonSchema(schema);
  if (!gbnf.ok()) return 0;
  shardline::FollowChoices(*gbnf, end == std::string_view::npos ? "" : input.substr(end + 1));
  return 0;
}
