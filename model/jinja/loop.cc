#include "model/jinja/loop.h"

#include <limits>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "model/jinja/operators.h"

namespace shardline::jinja {
namespace {

Value Function(std::function<absl::StatusOr<Value>(Runtime&, Arguments&)> call) {
  auto callable = std::make_shared<Callable>();
  callable->call = std::move(call);
  return Value::Of(std::shared_ptr<const Callable>(std::move(callable)));
}

Value Number(size_t number) { return Value::Int(static_cast<int64_t>(number)); }

}  // namespace

absl::Status Loop::Peek(size_t count) {
  const std::vector<Value>& items = items_.sequence().items;
  while (passed_.size() - turn_ < count && read_ < items.size()) {
    const Value& item = items[read_++];
    if (filter_ != nullptr) {
      SL_ASSIGN_OR_RETURN(const bool passes, filter_(item));
      if (!passes) continue;
    }
    passed_.push_back(item);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Value>> Loop::Advance() {
  SL_RETURN_IF_ERROR(Peek(1));
  if (turn_ == passed_.size()) return std::nullopt;
  return passed_[turn_++];
}

absl::StatusOr<int64_t> Loop::Length() {
  SL_RETURN_IF_ERROR(Peek(std::numeric_limits<size_t>::max()));
  return static_cast<int64_t>(passed_.size());
}

void Loop::End() {
  has_ended_ = true;
  filter_ = nullptr;
  shown_.reset();
}

absl::StatusOr<Value> Loop::AttributeOf(const std::string& name) {
  if (name == "index") return Number(turn_);
  if (name == "index0") return Value::Int(static_cast<int64_t>(turn_) - 1);
  if (name == "first") return Value::Bool(turn_ == 1);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "last") {
    SL_RETURN_IF_ERROR(Peek(1));
    return Value::Bool(turn_ == passed_.size());
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    SL_ASSIGN_OR_RETURN(const int64_t length, Length());
    if (name == "length") return Value::Int(length);
    return Value::Int(length - static_cast<int64_t>(turn_) + (name == "revindex" ? 1 : 0));
  }
  if (name == "previtem") {
    return turn_ < 2 ? Value::Undefined("there is no previous item") : passed_[turn_ - 2];
  }
  if (name == "nextitem") {
    SL_RETURN_IF_ERROR(Peek(1));
    return turn_ == passed_.size() ? Value::Undefined("there is no next item") : passed_[turn_];
  }
  if (name == "cycle") {
    return Function([self = shared_from_this()](Runtime&, Arguments& arguments) {
      return self->Cycle(arguments);
    });
  }
  if (name == "changed") {
    return Function([self = shared_from_this()](Runtime& runtime, Arguments& arguments) {
      return self->Changed(runtime, arguments);
    });
  }
  return Value::Undefined(Join({"'loop' has no attribute '", name, "'"}));
}

absl::StatusOr<Value> Loop::Cycle(Arguments& arguments) const {
  if (arguments.positional.empty()) return Fault({"cycle needs something to cycle through"});
  return arguments.positional[(turn_ - 1) % arguments.positional.size()];
}

absl::StatusOr<Value> Loop::Changed(Runtime& runtime, Arguments& arguments) {
  // What is shown may hold this very loop: a ring that only End takes apart.
  if (has_ended_) return Fault({"the loop is over"});
  Value now = Value::Tuple(&runtime.meter, std::move(arguments.positional));
  SL_RETURN_IF_ERROR(runtime.meter.Spend(now.extent().weight));
  const bool has_changed = !shown_.has_value() || !Equal(*shown_, now);
  shown_ = std::move(now);
  return Value::Bool(has_changed);
}

}  // namespace shardline::jinja
