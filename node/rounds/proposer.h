#pragma once

// Guesses what a text goes on with. A guess costs rows and is never believed: a draft token is
// accepted only if it is what would have been sampled (sampling/sampler.h), so what a proposer says
// moves speed and no bit.
//
// Sans-IO, not thread-safe: on the shard's strand. Memory is bounded by the text.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace shardline {

struct Draft {
  int32_t token = -1;
  float chance = 0.0F;  // That it is right, if all drafts before it are: the proposer's own word.
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  virtual std::string_view name() const = 0;

  // The text so far: prompt, then each token as it is accepted. In order, without gaps.
  virtual void Accept(std::span<const int32_t> tokens) = 0;

  // At most `count` tokens that may come next; none if it has no idea. A pure function of what was
  // accepted.
  virtual std::vector<Draft> Propose(size_t count) const = 0;
};

}  // namespace shardline
