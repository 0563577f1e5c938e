#include "model/jinja/globals.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "model/jinja/arguments.h"
#include "model/jinja/format.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {
namespace {

using Global = absl::StatusOr<Value> (*)(Runtime&, Arguments&);

absl::StatusOr<Value> Range(Runtime& runtime, Arguments& arguments) {
  constexpr int64_t kMost = 100'000;
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "range", {"start", "stop", "step"}, 1));
  SL_ASSIGN_OR_RETURN(int64_t start, bound.IntegerOr(0, 0));
  SL_ASSIGN_OR_RETURN(int64_t stop, bound.IntegerOr(1, 0));
  SL_ASSIGN_OR_RETURN(const int64_t step, bound.IntegerOr(2, 1));
  if (!bound.Has(1)) stop = std::exchange(start, 0);
  if (step == 0) return Fault({"range: the step is zero"});
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (items.size() == kMost) return Fault({"range is longer than 100000"});
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::OfItems(&runtime.meter, Sequence::Form::kRange, std::move(items));
}

// The items of a mapping, or of an iterable of pairs, then the named arguments.
absl::StatusOr<std::vector<std::pair<Value, Value>>> EntriesOf(Runtime& runtime,
                                                               Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) return Fault({"dict takes at most one mapping"});
  for (const Value& source : arguments.positional) {
    if (source.Is(Kind::kDict)) {
      entries = source.dict().entries;
      continue;
    }
    SL_ASSIGN_OR_RETURN(const Value pairs, ItemsOf(runtime.meter, source));
    for (const Value& pair : pairs.sequence().items) {
      SL_ASSIGN_OR_RETURN(const Value parts, ItemsOf(runtime.meter, pair));
      if (parts.sequence().items.size() != 2) return Fault({"dict takes pairs"});
      entries.emplace_back(parts.sequence().items[0], parts.sequence().items[1]);
    }
  }
  for (auto& [name, value] : arguments.named) {
    entries.emplace_back(Value::OfText(&runtime.meter, name), std::move(value));
  }
  return entries;
}

absl::StatusOr<Value> MakeDict(Runtime& runtime, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(auto entries, EntriesOf(runtime, arguments));
  return Value::OfEntries(&runtime.meter, std::move(entries));
}

absl::StatusOr<Value> MakeNamespace(Runtime& runtime, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Value dict, MakeDict(runtime, arguments));
  auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.Is(Kind::kText)) return Fault({"the names of a namespace must be str"});
    space->attributes.emplace_back(key.bytes(), value);
  }
  constexpr size_t kBytes = 256;
  runtime.meter.Hold(kBytes);  // To the end of the rendering: it is kept there.
  runtime.spaces.push_back(space);
  return Value::Of(std::move(space));
}

absl::StatusOr<Value> RaiseException(Runtime&, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "raise_exception", {"message"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string message, TextOf(bound[0]));
  return Fault({message});
}

absl::StatusOr<Value> FormatNow(Runtime& runtime, Arguments& arguments) {
  SL_ASSIGN_OR_RETURN(const Bound bound, Bind(arguments, "strftime_now", {"format"}, 1));
  SL_ASSIGN_OR_RETURN(const std::string format, bound.TextOr(0, ""));
  constexpr std::string_view kKnown = "aAbBcdDeFHIjmMpRSTuUwWxXyY%";
  constexpr size_t kFormatMax = 1000;
  if (format.size() > kFormatMax) return Fault({"strftime_now: the format is too long"});
  for (size_t at = format.find('%'); at != format.npos; at = format.find('%', at + 2)) {
    if (at + 1 == format.size() || kKnown.find(format[at + 1]) == kKnown.npos) {
      return Fault({"strftime_now: the format '", format, "' is not supported"});
    }
  }
  return Value::OfText(&runtime.meter, absl::FormatTime(format, runtime.now, absl::UTCTimeZone()));
}

absl::StatusOr<Value> NotSupported(Runtime&, Arguments&) {
  return Fault({"this function of Jinja is not supported"});
}

struct Entry {
  std::string_view name;
  Global function;
};

constexpr Entry kGlobals[] = {{"range", Range},
                              {"dict", MakeDict},
                              {"namespace", MakeNamespace},
                              {"raise_exception", RaiseException},
                              {"strftime_now", FormatNow},
                              {"cycler", NotSupported},
                              {"joiner", NotSupported},
                              {"lipsum", NotSupported}};

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  for (const Entry& entry : kGlobals) {
    if (entry.name != name) continue;
    auto callable = std::make_shared<Callable>();
    callable->call = entry.function;
    return Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
  }
  return std::nullopt;
}

}  // namespace shardline::jinja
