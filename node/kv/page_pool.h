#pragma once

// The pages of one shard: free, held by attempts, or cached and idle.
//
// A page that was named (Publish) can be found by its key, and held by any number of attempts; its
// rows never change again. When nobody holds it, it stays cached until its place is needed: idle
// pages are evicted in the order in which they were let go, but never one that another idle page
// continues, so a run of pages shrinks from its tail and what is left can still be found.
//
// Always: free + held + idle = total. Every call is O(log n) or better. Bookkeeping only, no clock;
// lives on the shard's loop thread.

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/prefix_chain.h"

namespace shardline {

class PagePool {
 public:
  // REQUIRES: pages_total > 0.
  explicit PagePool(int32_t pages_total);

  // The pages of the longest run of `keys`, from the first on, that are cached.
  std::vector<int32_t> Find(std::span<const PrefixKey> keys) const;

  // A cached page gets one holder more. REQUIRES: it is cached.
  void Share(int32_t page);

  // A page for one holder: a free one or, when there is none, the idle one whose turn it is.
  // REQUIRES: pages_available() > 0.
  int32_t Take();

  // One holder fewer. True: nobody holds the page any more, and it is free, or idle if it is named.
  // REQUIRES: the page is held.
  bool Drop(int32_t page);

  // Names a held page, so that Find can see it: its rows are complete. `parent` is the key of the
  // page before it; empty for the first. False, and nothing changes, if the key is another page's.
  // REQUIRES: the page is held and has no name, and the key is not empty.
  bool Publish(int32_t page, const PrefixKey& key, const PrefixKey& parent);

  int32_t pages_total() const { return static_cast<int32_t>(pages_.size()); }
  // What Take can give out: free and idle ones.
  int32_t pages_available() const { return static_cast<int32_t>(free_.size()) + idle_; }
  int32_t pages_idle() const { return idle_; }
  int32_t pages_cached() const { return static_cast<int32_t>(cached_.size()); }
  int32_t HoldersOf(int32_t page) const { return pages_[static_cast<size_t>(page)].holders; }
  uint64_t evictions() const { return evictions_; }

  // Not OK if the books disagree with themselves, or with the holders counted by the caller: one
  // number a page. Walks everything.
  absl::Status Audit(std::span<const int32_t> holders) const;

 private:
  struct Page {
    int32_t holders = 0;
    PrefixKey key;     // Empty: not cached.
    PrefixKey parent;  // Empty: the first of its chain, or it is not known.
    uint64_t let_go = 0;
  };

  Page& At(int32_t page);
  bool IsIdle(const Page& page) const { return page.holders == 0 && !page.key.empty(); }
  bool IsContinued(const PrefixKey& key) const { return idle_children_.contains(key); }
  void BecomeIdle(int32_t page);
  void StopBeingIdle(int32_t page);
  // The page that has `parent` for its key may or may not be evicted now.
  void ChildBecameIdle(const PrefixKey& parent);
  void ChildStoppedBeingIdle(const PrefixKey& parent);
  int32_t Evict();

  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // A stack: the page freed last is handed out first.
  absl::flat_hash_map<PrefixKey, int32_t> cached_;
  // Idle pages that no idle page continues, in the order of their eviction.
  std::set<std::pair<uint64_t, int32_t>> evictable_;
  // By the key of the page that they continue, whether or not it is cached. No zeros.
  absl::flat_hash_map<PrefixKey, int32_t> idle_children_;
  int32_t idle_ = 0;
  uint64_t let_go_next_ = 1;
  uint64_t evictions_ = 0;
};

}  // namespace shardline
