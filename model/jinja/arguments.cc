#include "model/jinja/arguments.h"

#include <algorithm>

#include "model/jinja/fault.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {

Value Bound::Or(size_t index, const Value& fallback) const {
  return Has(index) ? *values_[index] : fallback;
}

bool Bound::IsTrueAt(size_t index) const { return Has(index) && IsTrue(*values_[index]); }

absl::StatusOr<int64_t> Bound::IntegerOr(size_t index, int64_t fallback) const {
  if (!Has(index) || values_[index]->Is(Kind::kNone)) return fallback;
  if (!values_[index]->IsInteger()) {
    return Fault({"an argument is ", TypeName(*values_[index]), ", not int"});
  }
  return values_[index]->as_int();
}

absl::StatusOr<std::string> Bound::TextOr(size_t index, std::string_view fallback) const {
  if (!Has(index) || values_[index]->Is(Kind::kNone)) return std::string(fallback);
  if (!values_[index]->Is(Kind::kText)) {
    return Fault({"an argument is ", TypeName(*values_[index]), ", not str"});
  }
  return values_[index]->bytes();
}

absl::StatusOr<Bound> Bind(const Arguments& arguments, std::string_view function,
                           std::initializer_list<std::string_view> parameters, size_t required) {
  std::vector<std::optional<Value>> values(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return Fault({function, " takes at most ", std::to_string(parameters.size()), " arguments"});
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) return Fault({function, " takes no argument '", name, "'"});
    std::optional<Value>& slot = values[static_cast<size_t>(found - parameters.begin())];
    if (slot.has_value()) return Fault({function, " got '", name, "' twice"});
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i].has_value()) {
      return Fault({function, " lacks the argument '", parameters.begin()[i], "'"});
    }
  }
  return Bound(std::move(values));
}

}  // namespace shardline::jinja
