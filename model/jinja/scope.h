#pragma once

// Which names mean what: a chain of scopes, the innermost first. What is set in a scope ends with
// it; the scopes around it are read and never written.

#include <memory>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace shardline::jinja {

// Number of a name in its template.
using NameId = int;

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  void Set(NameId name, Value value) {
    for (auto& [known, old] : values_) {
      if (known == name) {
        old = std::move(value);
        return;
      }
    }
    values_.emplace_back(name, std::move(value));
  }

  // Null if no scope of the chain has the name.
  const Value* Find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
      for (const auto& [known, value] : scope->values_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

  void Clear() {
    // Not while the vector is being emptied: a value's end may come back here.
    std::vector<std::pair<NameId, Value>> values = std::move(values_);
    values_.clear();
  }

  size_t size() const { return values_.size(); }
  const std::shared_ptr<Scope>& outer() const { return outer_; }

 private:
  const std::shared_ptr<Scope> outer_;
  std::vector<std::pair<NameId, Value>> values_;
};

}  // namespace shardline::jinja
