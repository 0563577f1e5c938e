#include "node/kv/page_pool.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted_bug.h"

namespace shardline {

PagePool::PagePool(int32_t pages_total) {
  SL_CHECK(pages_total > 0);
  pages_.resize(static_cast<size_t>(pages_total));
  free_.reserve(pages_.size());
  for (int32_t page = pages_total - 1; page >= 0; --page) free_.push_back(page);
}

PagePool::Page& PagePool::At(int32_t page) {
  SL_CHECK(page >= 0 && page < pages_total(), "page ", page);
  return pages_[static_cast<size_t>(page)];
}

std::vector<int32_t> PagePool::Find(std::span<const PrefixKey> keys) const {
  std::vector<int32_t> found;
  for (const PrefixKey& key : keys) {
    const auto it = cached_.find(key);
    if (it == cached_.end()) break;
    found.push_back(it->second);
  }
  return found;
}

void PagePool::Share(int32_t page) {
  SL_CHECK(!At(page).key.empty());
  if (IsIdle(At(page))) StopBeingIdle(page);
  ++At(page).holders;
}

int32_t PagePool::Take() {
  SL_CHECK(pages_available() > 0);
  int32_t page = 0;
  if (free_.empty()) {
    page = Evict();
  } else {
    page = free_.back();
    free_.pop_back();
  }
  ++At(page).holders;
  return page;
}

bool PagePool::Drop(int32_t page) {
  SL_CHECK(At(page).holders > 0);
  if (--At(page).holders > 0) return false;
  if (At(page).key.empty()) {
    free_.push_back(page);
  } else {
    BecomeIdle(page);
  }
  return true;
}

bool PagePool::Publish(int32_t page, const PrefixKey& key, const PrefixKey& parent) {
  SL_CHECK(!key.empty());
  Page& named = At(page);
  SL_CHECK(named.holders > 0);
  if (!named.key.empty() || !cached_.emplace(key, page).second) return false;
  named.key = key;
  named.parent = parent;
  return true;
}

void PagePool::BecomeIdle(int32_t page) {
  Page& idle = At(page);
  if (Planted(PlantedBug::kPinnedPageEvicted)) evictable_.erase({idle.let_go, page});
  idle.let_go = let_go_next_++;
  ++idle_;
  if (!IsContinued(idle.key)) evictable_.emplace(idle.let_go, page);
  ChildBecameIdle(idle.parent);
}

void PagePool::StopBeingIdle(int32_t page) {
  const Page& idle = At(page);
  --idle_;
  if (!Planted(PlantedBug::kPinnedPageEvicted)) evictable_.erase({idle.let_go, page});
  ChildStoppedBeingIdle(idle.parent);
}

void PagePool::ChildBecameIdle(const PrefixKey& parent) {
  if (parent.empty() || ++idle_children_[parent] > 1) return;
  const auto it = cached_.find(parent);
  if (it != cached_.end()) evictable_.erase({At(it->second).let_go, it->second});
}

void PagePool::ChildStoppedBeingIdle(const PrefixKey& parent) {
  const auto count = idle_children_.find(parent);
  if (parent.empty() || --count->second > 0) return;
  idle_children_.erase(count);
  const auto it = cached_.find(parent);
  if (it != cached_.end() && IsIdle(At(it->second))) {
    evictable_.emplace(At(it->second).let_go, it->second);
  }
}

int32_t PagePool::Evict() {
  SL_CHECK(!evictable_.empty());
  const int32_t page = evictable_.begin()->second;
  evictable_.erase(evictable_.begin());
  Page& evicted = At(page);
  if (IsIdle(evicted)) {
    --idle_;
    ChildStoppedBeingIdle(evicted.parent);
  }
  cached_.erase(evicted.key);
  evicted.key = {};
  evicted.parent = {};
  ++evictions_;
  return page;
}

absl::Status PagePool::Audit(std::span<const int32_t> holders) const {
  const auto wrong = [](const auto&... what) { return absl::InternalError(absl::StrCat(what...)); };
  std::vector<bool> is_free(pages_.size(), false);
  for (const int32_t page : free_) {
    if (is_free[static_cast<size_t>(page)]) return wrong("page ", page, " is free twice");
    is_free[static_cast<size_t>(page)] = true;
  }
  int32_t idle = 0;
  int32_t cached = 0;
  size_t evictable = 0;
  for (size_t page = 0; page < pages_.size(); ++page) {
    const Page& p = pages_[page];
    const bool is_cached = !p.key.empty();
    if (p.holders != holders[page]) {
      return wrong("page ", page, " is held by ", holders[page], " attempts, it says ", p.holders);
    }
    if (!is_cached && p.holders > 1) {
      return wrong("page ", page, " is held by ", p.holders, " attempts, and is not shared");
    }
    if (is_free[page] == (is_cached || p.holders > 0)) {
      return wrong("page ", page, is_free[page] ? " is free and in use" : " is lost");
    }
    if (!is_cached) continue;
    ++cached;
    const auto it = cached_.find(p.key);
    if (it == cached_.end() || it->second != static_cast<int32_t>(page)) {
      return wrong("page ", page, " has a name that does not find it");
    }
    if (p.holders > 0) continue;
    ++idle;
    if (IsContinued(p.key)) continue;
    ++evictable;
    if (!evictable_.contains({p.let_go, static_cast<int32_t>(page)})) {
      return wrong("page ", page, " is idle and cannot be evicted");
    }
  }
  if (idle != idle_ || cached != pages_cached() || evictable != evictable_.size()) {
    return wrong(idle, " of ", cached, " cached pages are idle and ", evictable,
                 " may be evicted; the counts are ", idle_, ", ", pages_cached(), " and ",
                 evictable_.size());
  }
  return absl::OkStatus();
}

}  // namespace shardline
