#pragma once

// What one request may say about its own logits before each draw: a grammar, a bias, a ban.
//
// Never about another request's. State is a function of the tokens drawn so far, so that a restart
// rebuilds it from them. Not thread-safe: it travels with its sampler.

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"

namespace shardline {

class RowPolicy {
 public:
  virtual ~RowPolicy() = default;

  // Changes logits [vocab] in place; -infinity rules a token out. A failure ends the request alone.
  virtual absl::Status Apply(std::span<float> logits) = 0;

  // `token` was drawn and is now part of the text.
  virtual void Accept(int32_t token) = 0;

  // True once nothing may follow: the request ends as if by a stop token.
  virtual bool finished() const { return false; }
};

}  // namespace shardline
