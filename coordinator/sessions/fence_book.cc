#include "coordinator/sessions/fence_book.h"

#include <utility>

namespace shardline {

void FenceBook::Send(const SessionsActions::Fence& fence, Instant until, const std::string& frees) {
  const auto [entry, fresh] = entries_.insert_or_assign(
      Key{fence.key, fence.stage}, Entry{.fence = fence, .until = until, .frees = frees});
  if (fresh) ++out_count_;
  ++stats_->fences_sent;
  actions_->fence.push_back(fence);
}

std::string FenceBook::OnReply(const AttemptKey& key, size_t stage,
                               const absl::StatusOr<FenceResult>& result, Instant now) {
  const auto found = entries_.find({key, stage});
  if (found == entries_.end() || !found->second.out) return "";
  --out_count_;
  found->second.out = false;
  const std::string frees = AnyOut(key) ? "" : found->second.frees;
  if (result.ok()) {
    ++stats_->fences_answered;
    stats_->pages_released += result->pages_released;
    stats_->buffers_released += result->buffers_released;
    entries_.erase(found);
    return frees;
  }
  ++stats_->fences_failed;
  DropOwed(now);
  return frees;
}

bool FenceBook::AnyOut(const AttemptKey& key) const {
  for (auto it = entries_.lower_bound({key, 0}); it != entries_.end(); ++it) {
    if (it->first.first != key) return false;
    if (it->second.out) return true;
  }
  return false;
}

void FenceBook::OnNodeReady(const StagePeer& life, Instant now) {
  DropOwed(now);
  for (auto& [key, entry] : entries_) {
    if (entry.out || entry.fence.to.peer() != life) continue;
    entry.out = true;
    ++out_count_;
    ++stats_->fences_sent;
    ++stats_->fences_resent;
    actions_->fence.push_back(entry.fence);
  }
}

void FenceBook::DropOwed(Instant now) {
  // In order of the sessions' numbers, and so the oldest first where there are too many.
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool drop = !it->second.out && (now >= it->second.until || owed_count() > kOwedMax);
    it = drop ? entries_.erase(it) : std::next(it);
  }
}

}  // namespace shardline
