#include "model/jinja/filters.h"

#include "base/status_macros.h"

namespace shardline::jinja {

absl::StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                                  Arguments& arguments) {
  for (const auto find : {FindTextFilter, FindNumberFilter, FindListFilter}) {
    const Builtin filter = find(name);
    if (filter == nullptr) continue;
    SL_RETURN_IF_ERROR(runtime.Enter());  // `map` applies filters that may be `map`.
    absl::StatusOr<Value> result = filter(runtime, input, arguments);
    runtime.Leave();
    return result;
  }
  return Fault({"the filter '", name, "' is unknown or not supported"});
}

}  // namespace shardline::jinja
