#pragma once

// Proposes the most frequent continuation of the text's end, by counting what followed each context
// of 2 to 5 tokens: a suffix tree cut at that depth, with its nodes in a hash table.
//
// The longest context that was seen more than once speaks, and its proposal is walked on from.
// Right for texts that repeat shapes rather than passages. Bounded: at most kSuffixContextsMax
// contexts of two followers each, in all below 0.6 MiB; when they are full all counts are halved,
// and those that reach zero are forgotten.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "node/rounds/proposer.h"

namespace shardline {

inline constexpr size_t kSuffixContextsMax = 14000;

class SuffixIndex : public Proposer {
 public:
  // REQUIRES: contexts_max > 0.
  explicit SuffixIndex(size_t contexts_max = kSuffixContextsMax);

  std::string_view name() const override { return "suffix_index"; }
  void Accept(std::span<const int32_t> tokens) override;
  std::vector<Draft> Propose(size_t count) const override;

  size_t contexts() const { return contexts_.size(); }

 private:
  static constexpr size_t kDepthMin = 2;
  static constexpr size_t kDepthMax = 5;

  struct Follower {
    int32_t token = -1;
    uint32_t count = 0;
  };
  // What followed one context. A newcomer takes the second place.
  struct Context {
    std::array<Follower, 2> followers;  // The more frequent first.
    uint32_t total = 0;
  };

  void Add(Context& context, int32_t token);
  void Age();
  // The best follower of the longest known context that `text` ends with; token -1 if there is
  // none.
  Draft BestAfter(std::span<const int32_t> text) const;

  const size_t contexts_max_;
  std::vector<int32_t> tail_;                        // The last kDepthMax tokens at most.
  absl::flat_hash_map<uint64_t, Context> contexts_;  // By hash of the tokens.
};

}  // namespace shardline
