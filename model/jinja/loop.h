#pragma once

// The `loop` of a `for`: which turn it is, and what comes before and after.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/jinja/runtime.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

// Reads ahead only when asked (`loop.last`, `loop.length`): the filter of a loop may depend on what
// its body has done.
class Loop : public std::enable_shared_from_this<Loop> {
 public:
  using Filter = std::function<absl::StatusOr<bool>(const Value& item)>;

  // `items` is a sequence. The filter is not called after End.
  Loop(Value items, Filter filter) : items_(std::move(items)), filter_(std::move(filter)) {}

  // The next item; nothing at the end.
  absl::StatusOr<std::optional<Value>> Advance();

  absl::StatusOr<Value> AttributeOf(const std::string& name);

  // When the `for` is done: the loop itself may live on in a namespace.
  void End();

 private:
  // Reads ahead until `count` items wait or there are no more.
  absl::Status Peek(size_t count);
  absl::StatusOr<int64_t> Length();
  absl::StatusOr<Value> Cycle(Arguments& arguments) const;
  absl::StatusOr<Value> Changed(Runtime& runtime, Arguments& arguments);

  const Value items_;
  Filter filter_;
  size_t read_ = 0;             // Of items_.
  std::vector<Value> passed_;   // What the filter let through, the items seen and peeked at.
  size_t turn_ = 0;             // Items handed out.
  std::optional<Value> shown_;  // What `changed` was last asked about; empty after End.
  bool has_ended_ = false;
};

}  // namespace shardline::jinja
