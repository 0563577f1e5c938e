#pragma once

// Every fence that a stage was sent and has not obeyed yet.
//
// A fence whose node could not be reached is owed: it is sent again when that life of the node is
// back, until `until` has passed; by then the node has freed everything by its own deadline. Owed
// fences are bounded; beyond the bound the oldest is left to the node's deadline.
//
// Sans-IO, on the coordinator's strand.

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/sessions/session_words.h"

namespace shardline {

class FenceBook {
 public:
  static constexpr size_t kOwedMax = 4096;

  // Both outlive this.
  FenceBook(SessionsActions* actions, SessionsStats* stats) : actions_(actions), stats_(stats) {}

  // `frees` is the line of the queue that gets room by it; empty: none.
  void Send(const SessionsActions::Fence& fence, Instant until, const std::string& frees);
  // Of every answer the first counts. The line that has room now that the attempt's last fence is
  // answered; empty: none.
  std::string OnReply(const AttemptKey& key, size_t stage,
                      const absl::StatusOr<FenceResult>& result, Instant now);
  void OnNodeReady(const StagePeer& life, Instant now);

  bool any_out() const { return out_count_ > 0; }
  size_t owed_count() const { return entries_.size() - out_count_; }

 private:
  struct Entry {
    SessionsActions::Fence fence;
    Instant until;
    std::string frees;
    bool out = true;  // Else owed.
  };
  using Key = std::pair<AttemptKey, size_t>;

  bool AnyOut(const AttemptKey& key) const;
  void DropOwed(Instant now);

  SessionsActions* const actions_;
  SessionsStats* const stats_;

  std::map<Key, Entry> entries_;  // Ordered: equal events give equal actions.
  size_t out_count_ = 0;
};

}  // namespace shardline
