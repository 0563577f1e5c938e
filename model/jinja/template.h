#pragma once

// Jinja in a sandbox: the language of chat templates, as model libraries run it.
//
// The subset that templates of models use, with Python's semantics; what is not supported fails by
// name when it is reached, or when it is parsed if it is syntax. Nothing is read but the variables
// given, nothing is changed, and every rendering ends within its limits.
// Immutable after Parse, so any thread.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/jinja/meter.h"

namespace shardline::jinja {

struct Tree;

// What a template may name, by name. Not owned.
using Variables = std::vector<std::pair<std::string_view, const nlohmann::ordered_json*>>;

class Template {
 public:
  // Fails with "line:column: what" on syntax that is wrong or not supported.
  static absl::StatusOr<std::unique_ptr<const Template>> Parse(std::string_view source);

  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  // `now` is what strftime_now shows, in UTC. Fails with "line:column: what"; a raise_exception of
  // the template is such a failure.
  absl::StatusOr<std::string> Render(const Variables& variables, absl::Time now,
                                     const Limits& limits = {}) const;

  // Whether the template names this variable at all.
  bool Names(std::string_view variable) const;

 private:
  explicit Template(std::unique_ptr<const Tree> tree);

  const std::unique_ptr<const Tree> tree_;
};

}  // namespace shardline::jinja
