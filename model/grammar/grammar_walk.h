#pragma once

// Where in a grammar a text is, byte by byte.
//
// A place is all the ways in which the text so far can be read: a set of (state, stack). Stacks are
// shared lists and sets are kept by content, so a place is a small number, equal places have equal
// numbers, and a step that was taken before is a look into a table: the walk builds, as far as it
// is used, the deterministic automaton of the grammar.
//
// Memory is bounded: some KiB as a rule, 16 MiB at the worst; so is the work from one Forget to the
// next, at some 100 ms. A text may not nest deeper than
// kGrammarDepthMax, as if the grammar said so. Any other limit that is met is told by met_limit:
// what the walk says then is no longer the grammar's word.
// Not thread-safe: belongs to one request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "model/grammar/grammar.h"

namespace shardline {

inline constexpr uint32_t kGrammarDepthMax = 1024;  // Of a stack.

class GrammarWalk {
 public:
  using Place = uint32_t;
  static constexpr Place kNowhere = 0;  // No text goes on from here.

  explicit GrammarWalk(std::shared_ptr<const Grammar> grammar);

  // Where an empty text is.
  Place start() const { return start_; }

  // For all: REQUIRES a place that this walk gave since Forget.
  Place Next(Place place, uint8_t byte) {
    const Place known = steps_[size_t{place} * grammar_->class_count() + grammar_->ClassOf(byte)];
    return known != kUnknown ? known : Compute(place, byte);
  }
  // The text may be over here.
  bool CanEnd(Place place) const { return places_[place].can_end; }
  // It may, and nothing can follow.
  bool MustEnd(Place place) const { return CanEnd(place) && places_[place].count == 0; }
  // See Grammar::Parse.
  bool AwaitsTrigger(Place place) const;

  // Sticky: some kNowhere may be the walk's own doing.
  bool met_limit() const { return met_limit_; }

  // For between tokens. Gives back all places but `*kept`, which gets a new number, if much memory
  // is used; true if it did. start() holds.
  bool Forget(Place* kept);

 private:
  using StackId = uint32_t;  // 0: empty.
  static constexpr Place kUnknown = UINT32_MAX;

  // One way to read the text: a state that reads bytes, and where to go when its rule is over.
  struct Reading {
    Grammar::StateId state;
    StackId stack;
    friend auto operator<=>(const Reading&, const Reading&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Reading& reading) {
      return H::combine(std::move(h), reading.state, reading.stack);
    }
  };
  struct StackNode {
    Grammar::StateId back_to;
    StackId below;
    uint32_t depth;
  };
  struct PlaceEntry {
    uint32_t begin = 0;  // Of readings_.
    uint32_t count = 0;
    bool can_end = false;
  };

  std::span<const Reading> ReadingsOf(Place place) const {
    return std::span(readings_).subspan(places_[place].begin, places_[place].count);
  }
  void Reset();
  Place Compute(Place place, uint8_t byte);
  // The place that the readings in work_ lead to without reading a byte.
  Place CloseWork();
  void Expand(const Reading& reading, bool* can_end);
  void Call(const Grammar::State& call, StackId stack);
  Place Intern(bool can_end);
  StackId StackOf(Grammar::StateId back_to, StackId below);

  const std::shared_ptr<const Grammar> grammar_;
  Place start_ = kNowhere;
  bool met_limit_ = false;
  int64_t work_left_ = 0;
  std::vector<PlaceEntry> places_;  // [0] is kNowhere.
  std::vector<Reading> readings_;   // Of all places, each sorted.
  std::vector<Place> steps_;        // [places, classes]
  absl::flat_hash_map<uint64_t, absl::InlinedVector<Place, 1>> place_ids_;  // By hash of readings.
  std::vector<StackNode> stacks_;
  absl::flat_hash_map<Reading, StackId> stack_ids_;  // By back_to and what is below.
  std::vector<Reading> work_;                        // Scratch.
  std::vector<Reading> found_;
  absl::flat_hash_set<Reading> visited_;
};

}  // namespace shardline
