#pragma once

// Strings of a `format` of JSON schema as GBNF. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

#include "model/grammar/grammar_builder.h"

namespace shardline {

// A rule for a JSON string of that format, quotes included: date (years 1000 to 2999, with their
// leap days), time, date-time, duration, email, hostname, ipv4, ipv6, uri (http and https), uuid.
// Nothing for another.
std::optional<std::string> AddJsonFormat(std::string_view format, GrammarBuilder* grammar);

}  // namespace shardline
