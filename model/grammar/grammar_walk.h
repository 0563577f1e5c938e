#pragma once

// Where in a grammar a text is, byte by byte.
//
// A place is all the ways in which the text so far can be read: a set of (state, stack). Stacks are
// shared lists and sets are kept by content, so a place is a small number, equal places have equal
// numbers, and a step that was taken before is a look into a table: the walk builds, as far as it
// is used, the deterministic automaton of the grammar.
//
// Memory is bounded (about 12 MiB at the worst, mostly some KiB). Where a limit is met the text
// cannot go on, which is as if the grammar said so: a mask never allows what Next would refuse.
// Not thread-safe: belongs to one request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "model/grammar/grammar.h"

namespace shardline {

inline constexpr uint32_t kGrammarDepthMax = 1024;          // Of a stack.
inline constexpr size_t kGrammarReadingsMax = 4096;         // Of one place.
inline constexpr size_t kGrammarReadingsKeptMax = 1 << 18;  // Of all places,
inline constexpr size_t kGrammarStacksMax = 1 << 17;        // and their stacks.
inline constexpr size_t kGrammarPlacesMax = 1 << 14;

class GrammarWalk {
 public:
  using Place = uint32_t;
  static constexpr Place kNowhere = 0;  // No text goes on from here.

  explicit GrammarWalk(std::shared_ptr<const Grammar> grammar);

  // Where an empty text is.
  Place start() const { return start_; }

  // REQUIRES, for all: a place of this walk that Forget did not take away.
  Place Next(Place place, uint8_t byte);
  bool CanEnd(Place place) const { return places_[place].can_end; }  // The text may be over.
  bool MustEnd(Place place) const;        // It can end, and nothing may follow.
  bool AwaitsTrigger(Place place) const;  // See Grammar::Parse.

  // True if a limit has been met since Forget: some kNowhere may be its doing.
  bool met_limit() const { return met_limit_; }

  // Gives all places but `kept` back if much memory is used; true if it did. Returns through `kept`
  // its new number. start() stays valid.
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
    friend H AbslHashValue(H h, const Reading& r) {
      return H::combine(std::move(h), r.state, r.stack);
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

  std::span<const Reading> ReadingsOf(Place place) const;
  Place Compute(Place place, uint8_t byte);
  // Replaces work_ by what it leads to without reading; returns whether the text can end.
  bool Close();
  void Visit(const Reading& reading);
  StackId PushOn(StackId below, Grammar::StateId back_to);
  Place Intern(bool can_end);
  void Reset();

  const std::shared_ptr<const Grammar> grammar_;
  std::vector<PlaceEntry> places_;  // [0] is kNowhere.
  std::vector<Reading> readings_;   // Of all places, each sorted.
  std::vector<Place> steps_;        // [places, classes]
  std::vector<StackNode> stacks_;
  absl::flat_hash_map<Reading, StackId> stack_ids_;              // By (back_to, below).
  absl::flat_hash_map<uint64_t, std::vector<Place>> place_ids_;  // By hash of readings.
  Place start_ = kNowhere;
  bool met_limit_ = false;
  std::vector<Reading> work_;  // Scratch.
  std::vector<Reading> found_;
  absl::flat_hash_set<Reading> visited_;
};

}  // namespace shardline
