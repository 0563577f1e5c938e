// Compiles any grammar, with and without a trigger, and walks texts through it.
//
// The input is a grammar, a zero byte, and a text. Nothing breaks, and places agree with what they
// say of themselves: where a text must end nothing follows, and what is forgotten is found again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"

namespace shardline {
namespace {

void WalkThrough(std::string_view gbnf, std::string_view trigger, std::string_view text) {
  const auto grammar = Grammar::Parse(gbnf, trigger);
  if (!grammar.ok()) return;
  GrammarWalk walk(*grammar);
  GrammarWalk::Place place = walk.start();
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const GrammarWalk::Place next = walk.Next(place, byte);
    SL_CHECK(next == walk.Next(place, byte));
    if (walk.MustEnd(place)) SL_CHECK(next == GrammarWalk::kNowhere);
    if (next == GrammarWalk::kNowhere) {
      SL_CHECK(!walk.CanEnd(next));
      break;
    }
    place = next;
    const bool can_end = walk.CanEnd(place);
    walk.Forget(&place);
    SL_CHECK(walk.met_limit() || walk.CanEnd(place) == can_end);
  }
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view gbnf = input.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? gbnf : input.substr(end + 1);
  shardline::WalkThrough(gbnf, {}, text);
  shardline::WalkThrough(gbnf, text.substr(0, 3), text);
  return 0;
}
