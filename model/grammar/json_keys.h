#pragma once

// Keys of JSON objects as GBNF. Pure; any thread.

#include <string>
#include <vector>

#include "model/grammar/grammar_builder.h"

namespace shardline {

// A rule for a JSON string, quotes included, that is none of `names`, and that is spelled without
// escapes, lest it be one of them in disguise. Without names: any string.
std::string AddJsonKeyBut(const std::vector<std::string>& names, GrammarBuilder* grammar);

}  // namespace shardline
