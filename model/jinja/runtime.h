#pragma once

// What one rendering shares: its meter, its date, and all that could hold itself in a ring.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "model/jinja/meter.h"
#include "model/jinja/scope.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

// Lives on the stack of Template::Render, one thread.
struct Runtime {
  Runtime(const Limits& limits, absl::Time date) : meter(limits), now(date) {}

  // Namespaces and macros reach each other, and themselves: empty them one by one, then let go.
  ~Runtime() {
    for (const auto& space : spaces) space->attributes.clear();
    for (const auto& scope : scopes) scope->Clear();
  }

  // One level of evaluation deeper, until Leave. Fails at the limit, without entering.
  absl::Status Enter() {
    if (depth_ >= meter.limits().depth_max) return Fault({"the template recurses too deeply"});
    ++depth_;
    return absl::OkStatus();
  }
  void Leave() { --depth_; }

  Meter meter;
  absl::Time now;  // Shown in UTC.
  std::vector<std::shared_ptr<Namespace>> spaces;
  std::vector<std::shared_ptr<Scope>> scopes;  // Those that macros were made in.

 private:
  int depth_ = 0;
};

}  // namespace shardline::jinja
