#pragma once

// Owns the right to write KV pages on one shard: which are free, and whose the others are.
//
// The pool is cut once and never grows, so a refusal is ordinary and means "shed load". An
// attempt's pages come all together (Reserve) and go all together (Release). Rows are appended
// beyond the valid length and become visible by moving one integer (Commit), so a step that dies
// half way is certainly not applied. A running step pins its attempt: a release meanwhile is
// deferred to the last unpin, so no page is written after it was freed.
//
// Full, committed pages whose tokens are named by a key can be found by later attempts (Publish,
// base/prefix_chain.h). What a reservation finds it shares and never writes; it looks up and takes
// hold in one operation. A shared page is held until its last attempt ends; then it stays cached,
// and counts as free, until its place is needed: page_pool.h.
//
// Always: free + held + idle = total. Bookkeeping only, the bytes belong to the executor. Holds no
// clock; lives on the shard's loop thread.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/prefix_chain.h"
#include "base/version.h"
#include "node/kv/page_pool.h"

namespace shardline {

// What a Release or the last Unpin gave back.
struct ReleasedPages {
  int32_t page_count = 0;      // To be reserved again by this call; without those that others hold.
  bool pinned_remain = false;  // A running step holds the pages; its last unpin frees them.
};

// Of cached prefixes, since construction.
struct PrefixStats {
  uint64_t lookups = 0;     // Reservations with keys that were granted,
  uint64_t hits = 0;        // those that found something,
  uint64_t hit_tokens = 0;  // and how much.
  uint64_t published = 0;   // Pages.
  uint64_t evictions = 0;   // Pages.
};

class HotKvManager {
 public:
  // REQUIRES: pages_total > 0.
  explicit HotKvManager(int32_t pages_total);

  // Takes the pages for `tokens_max` tokens, or none: kKvExhausted, with both numbers. The longest
  // run of `prefix_keys` that is cached is shared, the rest is taken; CachedTokensOf says how much
  // was found. kInvalidRequest if tokens_max < 1 or has no room behind the pages of the keys,
  // kStepConflict if `key` already holds pages.
  absl::Status Reserve(const AttemptKey& key, int32_t tokens_max,
                       std::span<const PrefixKey> prefix_keys = {});

  // The page table to write rows [expected_length, expected_length + count) through, all but the
  // first KeptRows; valid until the next call that is not const. The rows stay invisible until
  // Commit. The attempt's first append may begin at the end of any cached page: the rows before it
  // become visible with it, and those that are cached behind it are computed again but not written.
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
  // if rows are appended behind them, there are not as many, or they are in a page with a name.
  absl::Status Rewind(const AttemptKey& key, int32_t count);

  // Of rows [position, position + count): how many of the first are in shared pages, which hold
  // their keys and values already and must not be written.
  int32_t KeptRows(const AttemptKey& key, int32_t position, int32_t count) const;

  // The page `page_index` of the attempt can be found by `prefix_key` from now on, unless another
  // page has that name; then it stays the attempt's own. False, and nothing changes, if the page is
  // not complete, has had its name, or the attempt is unknown or released. Pages are named in
  // order; one that was passed over is not named any more. REQUIRES: the key is not empty.
  bool Publish(const AttemptKey& key, int32_t page_index, const PrefixKey& prefix_key);

  // The page table of the valid rows: kCacheMiss, or kStepConflict if the valid length is another.
  absl::StatusOr<std::span<const int32_t>> Resolve(const AttemptKey& key,
                                                   int32_t expected_length) const;

  // A step of `key` starts or ends. Pins count. REQUIRES: Pin: the attempt holds pages and is not
  // released; Unpin: it is pinned.
  void Pin(const AttemptKey& key);
  ReleasedPages Unpin(const AttemptKey& key);

  // Ends the attempt: its pages are free now, or at the last unpin. Unknown: nothing to free.
  ReleasedPages Release(const AttemptKey& key);

  // Walks everything: each page is free, idle, shared, or held by exactly one attempt. Not OK says
  // which is not. For tests and the simulator.
  absl::Status Audit() const;
  void CheckConservation() const;

  int32_t pages_total() const { return pool_.pages_total(); }
  // What can be reserved: free pages, and cached ones that nobody holds.
  int32_t pages_free() const { return pool_.pages_available(); }
  // In the hands of attempts, shared ones once.
  int32_t pages_held() const { return pages_total() - pages_free(); }
  int32_t pages_cached_idle() const { return pool_.pages_idle(); }
  int32_t pages_cached_held() const { return pool_.pages_cached() - pool_.pages_idle(); }
  PrefixStats prefix_stats() const;
  // Rises whenever an attempt loses pages: what was read of page tables before may hold no longer.
  uint64_t generation() const { return generation_; }
  // Pages that `tokens` tokens need.
  static int32_t PagesFor(int32_t tokens);
  // Visible rows; 0 for an unknown attempt.
  int32_t LengthOf(const AttemptKey& key) const;
  // Visible rows and appended ones.
  int32_t TakenLengthOf(const AttemptKey& key) const;
  // Pages of `key`, pinned ones of a released attempt included.
  int32_t PagesOf(const AttemptKey& key) const;
  // What its reservation found; whole pages. 0 for an unknown attempt.
  int32_t CachedTokensOf(const AttemptKey& key) const;
  // Its first pages that have had their name: Publish is next asked about the one behind them.
  int32_t NamedPagesOf(const AttemptKey& key) const;

 private:
  struct Holding {
    std::vector<int32_t> pages;  // table[position / kPageTokens].
    int32_t shared_pages = 0;    // The first ones: found, never written.
    bool begun = false;          // Something was appended, so `length` stands.
    int32_t length = 0;          // Visible rows.
    int32_t appended = 0;        // Rows beyond `length`.
    int32_t named_pages = 0;     // The first ones, found or published.
    PrefixKey last_name;         // Of the last of them.
    int32_t pin_count = 0;
    bool released = false;  // Only pins keep it.
  };
  using Holdings = absl::flat_hash_map<AttemptKey, Holding>;

  const Holding* Find(const AttemptKey& key) const;
  int32_t Free(Holdings::iterator it);

  PagePool pool_;
  Holdings holdings_;
  PrefixStats stats_;
  uint64_t generation_ = 0;
};

}  // namespace shardline
