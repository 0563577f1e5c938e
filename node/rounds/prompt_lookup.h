#pragma once

// Proposes what came after the last place where the text read as it reads now.
//
// The place is where the longest run of 4, 3 or 2 last tokens occurred most recently; what followed
// it is proposed, and the longer the two places agree, the likelier it is. Right for answers that
// quote their prompt or themselves. Each token costs three writes; memory is at most 52 bytes a
// token, and the text beyond kLookupTokensMax is not learnt from.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "node/rounds/proposer.h"

namespace shardline {

inline constexpr size_t kLookupTokensMax = 1 << 18;

class PromptLookup : public Proposer {
 public:
  std::string_view name() const override { return "prompt_lookup"; }
  void Accept(std::span<const int32_t> tokens) override;
  std::vector<Draft> Propose(size_t count) const override;

 private:
  static constexpr size_t kGramMin = 2;
  static constexpr size_t kGramMax = 4;
  // By hash of a gram: what followed its latest occurrence, 0 for none. Others with the same hash
  // overwrite it, so a place is compared with the text before it is believed.
  using Places = std::vector<uint32_t>;

  // Takes the grams that end before `place` into the tables.
  void Learn(size_t place);
  void Grow();
  size_t SlotOf(size_t end, size_t gram) const;
  // How many tokens before `place` are the text's last ones; looks at kMatchMax.
  size_t MatchAt(size_t place) const;

  std::vector<int32_t> text_;
  std::array<Places, kGramMax - kGramMin + 1> places_;  // All of one size, a power of two.
};

}  // namespace shardline
