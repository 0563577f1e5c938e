#include "node/kv/hot_kv_manager.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

// 4096 is "4,096": pool sizes are read by people.
std::string Grouped(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

absl::Status Fail(FailureKind kind, const AttemptKey& key, const std::string& message) {
  return MakeFailure(FailureDetail{.kind = kind, .session = key.session, .epoch = key.epoch},
                     message);
}

std::string NameOf(const AttemptKey& key) {
  return absl::StrCat("session ", key.session.value(), " epoch ", key.epoch.value());
}

}  // namespace

HotKvManager::HotKvManager(int32_t pages_total) : pages_total_(pages_total) {
  SL_CHECK(pages_total > 0);
  free_.reserve(static_cast<size_t>(pages_total));
  for (int32_t page = pages_total - 1; page >= 0; --page) free_.push_back(page);
}

int32_t HotKvManager::PagesFor(int32_t tokens) {
  if (tokens <= 0) return 0;
  return (tokens - 1) / kPageTokens + 1;
}

absl::Status HotKvManager::Reserve(const AttemptKey& key, int32_t tokens_max) {
  if (tokens_max < 1) {
    return Fail(FailureKind::kInvalidRequest, key,
                absl::StrCat("reserve KV for ", NameOf(key), ": tokens_max is ", tokens_max));
  }
  if (holdings_.contains(key)) {
    return Fail(FailureKind::kStepConflict, key,
                absl::StrCat("reserve KV for ", NameOf(key), ": it already holds pages"));
  }
  const int32_t page_count = PagesFor(tokens_max);
  if (page_count > pages_free()) {
    return Fail(
        FailureKind::kKvExhausted, key,
        absl::StrCat("reserve KV for ", NameOf(key), ": pool has ", Grouped(pages_free()), " of ",
                     Grouped(pages_total_), " pages free, needs ", Grouped(page_count)));
  }
  Holding& holding = holdings_[key];
  holding.pages.assign(free_.rbegin(), free_.rbegin() + page_count);
  free_.resize(free_.size() - static_cast<size_t>(page_count));
  pages_held_ += page_count;
  SL_CHECK(pages_free() + pages_held_ == pages_total_);
  return absl::OkStatus();
}

absl::Status HotKvManager::CheckAppend(const AttemptKey& key, int32_t expected_length,
                                       int32_t count) const {
  const auto it = holdings_.find(key);
  if (it == holdings_.end() || it->second.released) {
    return Fail(FailureKind::kCacheMiss, key,
                absl::StrCat("append KV for ", NameOf(key), ": it holds no pages"));
  }
  const Holding& holding = it->second;
  const int32_t length = holding.length + holding.appended;
  if (expected_length != length) {
    return Fail(FailureKind::kStepConflict, key,
                absl::StrCat("append KV for ", NameOf(key), " at position ", expected_length,
                             ": the cache holds ", length, " tokens"));
  }
  if (count < 1) {
    return Fail(FailureKind::kInvalidRequest, key,
                absl::StrCat("append KV for ", NameOf(key), ": token count is ", count));
  }
  const int32_t room = static_cast<int32_t>(holding.pages.size()) * kPageTokens - length;
  if (count > room) {
    return Fail(FailureKind::kKvExhausted, key,
                absl::StrCat("append KV for ", NameOf(key), ": ", count, " tokens at position ",
                             length, " pass the ", Grouped(PagesOf(key)), " pages reserved"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const int32_t>> HotKvManager::Append(const AttemptKey& key,
                                                              int32_t expected_length,
                                                              int32_t count) {
  SL_RETURN_IF_ERROR(CheckAppend(key, expected_length, count));
  Holding& holding = holdings_.find(key)->second;
  holding.appended += count;
  return std::span<const int32_t>(holding.pages);
}

void HotKvManager::Commit(const AttemptKey& key, int32_t count) {
  const auto it = holdings_.find(key);
  SL_CHECK(it != holdings_.end());
  SL_CHECK(!it->second.released);
  SL_CHECK(count >= 1);
  SL_CHECK(count <= it->second.appended);
  it->second.appended -= count;
  it->second.length += count;
}

void HotKvManager::Abandon(const AttemptKey& key, int32_t count) {
  const auto it = holdings_.find(key);
  SL_CHECK(it != holdings_.end());
  SL_CHECK(!it->second.released);
  SL_CHECK(count >= 0);
  SL_CHECK(count <= it->second.appended);
  it->second.appended -= count;
}

absl::Status HotKvManager::Rewind(const AttemptKey& key, int32_t count) {
  const auto it = holdings_.find(key);
  if (it == holdings_.end() || it->second.released) {
    return Fail(FailureKind::kCacheMiss, key,
                absl::StrCat("rewind KV of ", NameOf(key), ": it holds no pages"));
  }
  Holding& holding = it->second;
  if (count < 0 || count > holding.length || holding.appended > 0) {
    return Fail(
        FailureKind::kStepConflict, key,
        absl::StrCat("rewind KV of ", NameOf(key), " by ", count, " tokens: the cache holds ",
                     holding.length, " and ", holding.appended, " behind them"));
  }
  holding.length -= count;
  return absl::OkStatus();
}

absl::StatusOr<std::span<const int32_t>> HotKvManager::Resolve(const AttemptKey& key,
                                                               int32_t expected_length) const {
  const auto it = holdings_.find(key);
  if (it == holdings_.end() || it->second.released) {
    return Fail(FailureKind::kCacheMiss, key,
                absl::StrCat("resolve KV of ", NameOf(key), ": it holds no pages"));
  }
  if (it->second.length != expected_length) {
    return Fail(FailureKind::kStepConflict, key,
                absl::StrCat("resolve KV of ", NameOf(key), " at length ", expected_length,
                             ": the cache holds ", it->second.length, " tokens"));
  }
  return std::span<const int32_t>(it->second.pages);
}

void HotKvManager::Pin(const AttemptKey& key) {
  const auto it = holdings_.find(key);
  SL_CHECK(it != holdings_.end());
  SL_CHECK(!it->second.released);
  ++it->second.pin_count;
}

ReleasedPages HotKvManager::Unpin(const AttemptKey& key) {
  const auto it = holdings_.find(key);
  if (Planted(PlantedBug::kPagesFreedWhilePinned) && it == holdings_.end()) return {};
  SL_CHECK(it != holdings_.end());
  SL_CHECK(it->second.pin_count > 0);
  if (--it->second.pin_count > 0) return {.page_count = 0, .pinned_remain = it->second.released};
  if (!it->second.released) return {};
  return {.page_count = Free(it), .pinned_remain = false};
}

ReleasedPages HotKvManager::Release(const AttemptKey& key) {
  const auto it = holdings_.find(key);
  if (it == holdings_.end()) return {};
  it->second.released = true;
  it->second.appended = 0;
  const bool pinned = it->second.pin_count > 0 && !Planted(PlantedBug::kPagesFreedWhilePinned);
  if (pinned) return {.page_count = 0, .pinned_remain = true};
  return {.page_count = Free(it), .pinned_remain = false};
}

int32_t HotKvManager::Free(Holdings::iterator it) {
  const std::vector<int32_t>& pages = it->second.pages;
  const auto page_count = static_cast<int32_t>(pages.size());
  // Reversed, so that the next attempt gets them in the order this one had them.
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
  pages_held_ -= page_count;
  holdings_.erase(it);
  SL_CHECK(pages_free() + pages_held_ == pages_total_);
  return page_count;
}

void HotKvManager::CheckConservation() const {
  std::vector<bool> seen(static_cast<size_t>(pages_total_), false);
  const auto mark = [&](int32_t page) {
    SL_CHECK(page >= 0 && page < pages_total_, "page ", page);
    SL_CHECK(!seen[static_cast<size_t>(page)], "page ", page, " has two owners");
    seen[static_cast<size_t>(page)] = true;
  };
  for (const int32_t page : free_) mark(page);
  int32_t held = 0;
  for (const auto& [key, holding] : holdings_) {
    for (const int32_t page : holding.pages) mark(page);
    held += static_cast<int32_t>(holding.pages.size());
    SL_CHECK(holding.length + holding.appended <=
             static_cast<int32_t>(holding.pages.size()) * kPageTokens);
    SL_CHECK(!holding.released || holding.pin_count > 0);
  }
  SL_CHECK(held == pages_held_);
  SL_CHECK(pages_free() + held == pages_total_);
}

int32_t HotKvManager::LengthOf(const AttemptKey& key) const {
  const auto it = holdings_.find(key);
  return it == holdings_.end() ? 0 : it->second.length;
}

int32_t HotKvManager::TakenLengthOf(const AttemptKey& key) const {
  const auto it = holdings_.find(key);
  return it == holdings_.end() ? 0 : it->second.length + it->second.appended;
}

int32_t HotKvManager::PagesOf(const AttemptKey& key) const {
  const auto it = holdings_.find(key);
  return it == holdings_.end() ? 0 : static_cast<int32_t>(it->second.pages.size());
}

}  // namespace shardline
