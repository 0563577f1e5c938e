#pragma once

// Owns the right to write KV pages on one shard: which are free, and whose the others are.
//
// The pool is cut once and never grows, so a refusal is ordinary and means "shed load". An
// attempt's pages come all together (Reserve) and go all together (Release). Rows are appended
// beyond the valid length and become visible by moving one integer (Commit), so a step that dies
// half way is certainly not applied. A running step pins its attempt: a release meanwhile is
// deferred to the last unpin, so no page is written after it was freed.
//
// Always: free + held = total. Bookkeeping only, the bytes belong to the executor. Holds no
// clock; lives on the shard's loop thread.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/version.h"

namespace shardline {

// What a Release or the last Unpin gave back.
struct ReleasedPages {
  int32_t page_count = 0;      // Free again by this call.
  bool pinned_remain = false;  // A running step holds the pages; its last unpin frees them.
};

class HotKvManager {
 public:
  // REQUIRES: pages_total > 0.
  explicit HotKvManager(int32_t pages_total);

  // Takes the pages for `tokens_max` tokens, or none: kKvExhausted, with both numbers.
  // kInvalidRequest if tokens_max < 1, kStepConflict if `key` already holds pages.
  absl::Status Reserve(const AttemptKey& key, int32_t tokens_max);

  // The page table to write rows [expected_length, expected_length + count) through; valid until
  // the next call that is not const. The rows stay invisible until Commit.
  // kCacheMiss for an unknown or released attempt, kStepConflict if expected_length is not the
  // length with all appended rows, kInvalidRequest if count < 1, kKvExhausted past the
  // reservation.
  absl::StatusOr<std::span<const int32_t>> Append(const AttemptKey& key, int32_t expected_length,
                                                  int32_t count);

  // What Append would answer; changes nothing.
  absl::Status CheckAppend(const AttemptKey& key, int32_t expected_length, int32_t count) const;

  // Makes the oldest `count` appended rows visible.
  // REQUIRES: as many are appended, and the attempt is not released.
  void Commit(const AttemptKey& key, int32_t count);

  // Forgets the newest `count` appended rows. REQUIRES: as Commit.
  void Abandon(const AttemptKey& key, int32_t count);

  // Takes the newest `count` visible rows back, as if they had never been committed: drafts that
  // were wrong. kCacheMiss for an unknown or released attempt; kStepConflict, and nothing changes,
  // if rows are appended behind them or there are not as many.
  absl::Status Rewind(const AttemptKey& key, int32_t count);

  // The page table of the valid rows: kCacheMiss, or kStepConflict if the valid length is another.
  absl::StatusOr<std::span<const int32_t>> Resolve(const AttemptKey& key,
                                                   int32_t expected_length) const;

  // A step of `key` starts or ends. Pins count. REQUIRES: Pin: the attempt holds pages and is not
  // released; Unpin: it is pinned.
  void Pin(const AttemptKey& key);
  ReleasedPages Unpin(const AttemptKey& key);

  // Ends the attempt: its pages are free now, or at the last unpin. Unknown: nothing to free.
  ReleasedPages Release(const AttemptKey& key);

  // Walks everything: each page is free or held by exactly one attempt. For tests and Inspect.
  void CheckConservation() const;

  int32_t pages_total() const { return pages_total_; }
  int32_t pages_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t pages_held() const { return pages_held_; }
  // Pages that `tokens` tokens need.
  static int32_t PagesFor(int32_t tokens);
  // Visible rows; 0 for an unknown attempt.
  int32_t LengthOf(const AttemptKey& key) const;
  // Visible rows and appended ones.
  int32_t TakenLengthOf(const AttemptKey& key) const;
  // Pages of `key`, pinned ones of a released attempt included.
  int32_t PagesOf(const AttemptKey& key) const;

 private:
  struct Holding {
    std::vector<int32_t> pages;  // table[position / kPageTokens].
    int32_t length = 0;          // Visible rows.
    int32_t appended = 0;        // Rows beyond `length`.
    int32_t pin_count = 0;
    bool released = false;  // Only pins keep it.
  };
  using Holdings = absl::flat_hash_map<AttemptKey, Holding>;

  int32_t Free(Holdings::iterator it);

  const int32_t pages_total_;
  std::vector<int32_t> free_;  // A stack: the page freed last is handed out first.
  int32_t pages_held_ = 0;
  Holdings holdings_;
};

}  // namespace shardline
