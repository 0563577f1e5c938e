#pragma once

// Values as text: str(), repr(), `%` and format().

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/meter.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

// The shortest text that reads back as the same number, as Python writes it.
std::string FloatText(double value);

// What printing shows. Fails on what shows only its address: functions of the engine, generators.
absl::StatusOr<std::string> TextOf(const Value& value);
absl::StatusOr<std::string> ReprOf(const Value& value);

// text % argument. A tuple is a list of arguments, a dict serves `%(name)s`.
absl::StatusOr<Value> FormatPercent(Meter& meter, const Text& text, const Value& argument);

// text.format(...): `{}`, `{0}`, `{name}`, each with `!r` or `!s`; format specifications are
// refused.
absl::StatusOr<Value> FormatBraces(Meter& meter, const Text& text, const Arguments& arguments);

// < > & ' " as entities.
std::string EscapeHtml(std::string_view text);

}  // namespace shardline::jinja
