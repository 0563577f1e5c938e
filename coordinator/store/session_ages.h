#pragma once

// How long sessions have been over, without a wall clock and without a time for each of them: from
// time to time it notes how many records the ledger had.

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "base/instant.h"

namespace shardline {

class SessionAges {
 public:
  // `records` are there already; they count as written `now`.
  SessionAges(Instant now, uint64_t records) : notes_{{now, records}} {}

  // The ledger has `records` now. Gives the last one that is older than `retention`; 0 for none.
  uint64_t Older(Instant now, uint64_t records, absl::Duration retention) {
    if (now - notes_.back().at >= retention / kNotesMax) notes_.push_back({now, records});
    while (notes_.size() > 1 && notes_[1].at + retention <= now) notes_.pop_front();
    return notes_.front().at + retention <= now ? notes_.front().records : 0;
  }

 private:
  static constexpr int64_t kNotesMax = 1000;
  struct Note {
    Instant at;
    uint64_t records;
  };
  std::deque<Note> notes_;  // Ascending, never empty.
};

}  // namespace shardline
