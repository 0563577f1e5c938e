#include "node/kv/hot_kv_manager.h"

#include <algorithm>
#include <string>
#include <utility>

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

HotKvManager::HotKvManager(int32_t pages_total) : pool_(pages_total) {}

int32_t HotKvManager::PagesFor(int32_t tokens) {
  if (tokens <= 0) return 0;
  return (tokens - 1) / kPageTokens + 1;
}

const HotKvManager::Holding* HotKvManager::Find(const AttemptKey& key) const {
  const auto it = holdings_.find(key);
  return it == holdings_.end() ? nullptr : &it->second;
}

absl::Status HotKvManager::Reserve(const AttemptKey& key, int32_t tokens_max,
                                   std::span<const PrefixKey> prefix_keys) {
  const auto fail = [&](FailureKind kind, const std::string& message) {
    return Fail(kind, key, absl::StrCat("reserve KV for ", NameOf(key), ": ", message));
  };
  if (tokens_max < 1) {
    return fail(FailureKind::kInvalidRequest, absl::StrCat("tokens_max is ", tokens_max));
  }
  const int32_t page_count = PagesFor(tokens_max);
  if (prefix_keys.size() > static_cast<size_t>((tokens_max - 1) / kPageTokens)) {
    return fail(FailureKind::kInvalidRequest,
                absl::StrCat(prefix_keys.size(), " prefix keys leave no token of ", tokens_max,
                             " to compute"));
  }
  if (holdings_.contains(key)) {
    return fail(FailureKind::kStepConflict, "it already holds pages");
  }
  const std::vector<int32_t> found = pool_.Find(prefix_keys);
  const auto shared_count = static_cast<int32_t>(found.size());
  int32_t spare = pages_free();
  for (const int32_t page : found) spare -= pool_.HoldersOf(page) == 0 ? 1 : 0;
  if (page_count - shared_count > spare) {
    std::string message = absl::StrCat("pool has ", Grouped(spare), " of ", Grouped(pages_total()),
                                       " pages free, needs ", Grouped(page_count - shared_count));
    if (shared_count > 0) {
      absl::StrAppend(&message, " beside the ", Grouped(shared_count), " that are cached");
    }
    return fail(FailureKind::kKvExhausted, message);
  }
  Holding& holding = holdings_[key];
  holding.pages = found;
  holding.pages.reserve(static_cast<size_t>(page_count));
  holding.shared_pages = holding.named_pages = shared_count;
  if (shared_count > 0) holding.last_name = prefix_keys[found.size() - 1];
  for (const int32_t page : found) pool_.Share(page);
  while (static_cast<int32_t>(holding.pages.size()) < page_count) {
    holding.pages.push_back(pool_.Take());
  }
  if (!prefix_keys.empty()) ++stats_.lookups;
  if (shared_count > 0) ++stats_.hits;
  stats_.hit_tokens += static_cast<uint64_t>(shared_count) * kPageTokens;
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
  const int32_t cached = CachedTokensOf(key);
  const bool is_start = !holding.begun && expected_length >= 0 && expected_length <= cached &&
                        expected_length % kPageTokens == 0;
  if (expected_length != length && !is_start) {
    return Fail(FailureKind::kStepConflict, key,
                absl::StrCat("append KV for ", NameOf(key), " at position ", expected_length,
                             ": the cache holds ", holding.begun ? length : cached, " tokens"));
  }
  if (count < 1) {
    return Fail(FailureKind::kInvalidRequest, key,
                absl::StrCat("append KV for ", NameOf(key), ": token count is ", count));
  }
  const int32_t room = PagesOf(key) * kPageTokens - expected_length;
  if (count > room) {
    return Fail(
        FailureKind::kKvExhausted, key,
        absl::StrCat("append KV for ", NameOf(key), ": ", count, " tokens at position ",
                     expected_length, " pass the ", Grouped(PagesOf(key)), " pages reserved"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const int32_t>> HotKvManager::Append(const AttemptKey& key,
                                                              int32_t expected_length,
                                                              int32_t count) {
  SL_RETURN_IF_ERROR(CheckAppend(key, expected_length, count));
  Holding& holding = holdings_.find(key)->second;
  if (!std::exchange(holding.begun, true)) holding.length = expected_length;
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
  const int32_t named = holding.named_pages * kPageTokens;
  if (count < 0 || holding.appended > 0 || count > std::max(0, holding.length - named)) {
    return Fail(FailureKind::kStepConflict, key,
                absl::StrCat("rewind KV of ", NameOf(key), " by ", count,
                             " tokens: the cache holds ", holding.length, ", ", named,
                             " of them named, and ", holding.appended, " behind them"));
  }
  holding.length -= count;
  return absl::OkStatus();
}

int32_t HotKvManager::KeptRows(const AttemptKey& key, int32_t position, int32_t count) const {
  return std::clamp(CachedTokensOf(key) - position, 0, count);
}

bool HotKvManager::Publish(const AttemptKey& key, int32_t page_index, const PrefixKey& prefix_key) {
  const auto it = holdings_.find(key);
  if (it == holdings_.end() || it->second.released) return false;
  Holding& holding = it->second;
  const bool is_complete = page_index < holding.length / kPageTokens ||
                           (Planted(PlantedBug::kCachedUncomputed) && page_index < PagesOf(key));
  if (page_index < holding.named_pages || !is_complete) return false;
  const bool follows = page_index == holding.named_pages;
  const PrefixKey parent = follows ? holding.last_name : PrefixKey();
  holding.named_pages = page_index + 1;
  holding.last_name = prefix_key;
  const int32_t page = holding.pages[static_cast<size_t>(page_index)];
  if (!pool_.Publish(page, prefix_key, parent)) return false;
  ++stats_.published;
  return true;
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
  ++generation_;
  it->second.appended = 0;
  const bool pinned = it->second.pin_count > 0 && !Planted(PlantedBug::kPagesFreedWhilePinned);
  if (pinned) return {.page_count = 0, .pinned_remain = true};
  return {.page_count = Free(it), .pinned_remain = false};
}

int32_t HotKvManager::Free(Holdings::iterator it) {
  const std::vector<int32_t>& pages = it->second.pages;
  int32_t page_count = 0;
  // Reversed: the next attempt gets them in the order this one had them, and of the named ones the
  // last is let go first.
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    page_count += pool_.Drop(*page) ? 1 : 0;
  }
  holdings_.erase(it);
  return page_count;
}

PrefixStats HotKvManager::prefix_stats() const {
  PrefixStats stats = stats_;
  stats.evictions = pool_.evictions();
  return stats;
}

absl::Status HotKvManager::Audit() const {
  std::vector<int32_t> holders(static_cast<size_t>(pages_total()), 0);
  for (const auto& [key, holding] : holdings_) {
    for (const int32_t page : holding.pages) ++holders[static_cast<size_t>(page)];
    const auto page_count = static_cast<int32_t>(holding.pages.size());
    if (holding.length + holding.appended > page_count * kPageTokens) {
      return absl::InternalError(absl::StrCat(NameOf(key), " has more rows than pages"));
    }
    if (holding.released && holding.pin_count == 0) {
      return absl::InternalError(absl::StrCat(NameOf(key), " is over and keeps its pages"));
    }
  }
  return pool_.Audit(holders);
}

void HotKvManager::CheckConservation() const {
  const absl::Status books = Audit();
  SL_CHECK(books.ok(), books.ToString());
}

int32_t HotKvManager::LengthOf(const AttemptKey& key) const {
  const Holding* holding = Find(key);
  return holding == nullptr ? 0 : holding->length;
}

int32_t HotKvManager::TakenLengthOf(const AttemptKey& key) const {
  const Holding* holding = Find(key);
  return holding == nullptr ? 0 : holding->length + holding->appended;
}

int32_t HotKvManager::PagesOf(const AttemptKey& key) const {
  const Holding* holding = Find(key);
  return holding == nullptr ? 0 : static_cast<int32_t>(holding->pages.size());
}

int32_t HotKvManager::CachedTokensOf(const AttemptKey& key) const {
  const Holding* holding = Find(key);
  return holding == nullptr ? 0 : holding->shared_pages * kPageTokens;
}

int32_t HotKvManager::NamedPagesOf(const AttemptKey& key) const {
  const Holding* holding = Find(key);
  return holding == nullptr ? 0 : holding->named_pages;
}

}  // namespace shardline
