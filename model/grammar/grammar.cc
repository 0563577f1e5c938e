#include "model/grammar/grammar.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/grammar/gbnf_syntax.h"
#include "model/grammar/grammar_compiler.h"

namespace shardline {

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Parse(std::string_view gbnf,
                                                              std::string_view trigger) {
  if (gbnf.size() > kGrammarBytesMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("grammar: it has ", gbnf.size(), " bytes, at most ", kGrammarBytesMax));
  }
  if (trigger.size() > kGrammarTriggerBytesMax) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("trigger: it has ", trigger.size(), " bytes, at most ",
                                    kGrammarTriggerBytesMax));
  }
  SL_ASSIGN_OR_RETURN(GbnfTree tree, ParseGbnf(gbnf));
  return GrammarCompiler(std::move(tree)).Compile(trigger);
}

std::span<const Grammar::Edge> Grammar::EdgesOf(const State& state) const {
  return std::span(edges_).subspan(state.begin, state.end - state.begin);
}

std::span<const Grammar::StateId> Grammar::TargetsOf(const State& state) const {
  return std::span(targets_).subspan(state.begin, state.end - state.begin);
}

}  // namespace shardline
