#pragma once

// What one reader of /admin/v1/events is sent, and when. Pure.
//
// States as soon as something has changed, no more than four a second, and at least one in two
// seconds, so that a reader knows how old its picture is. The timeline from where it stopped, a
// bounded part at a time.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/instant.h"
#include "coordinator/gateway/event_log.h"

namespace shardline {

inline constexpr absl::Duration kStateInterval = absl::Milliseconds(250);  // At least,
inline constexpr absl::Duration kStateSilence = absl::Seconds(2);          // and at most.
inline constexpr size_t kEventsAPiece = 200;

// A state as it is sent to all readers.
struct StateText {
  uint64_t version = 0;  // Another one: something has changed.
  Instant taken_at;
  std::string json;
};

class EventStream {
 public:
  // `after`: the last timeline event the reader has seen, or 0.
  explicit EventStream(uint64_t after) : after_(after) {}

  // What is due now; empty: nothing. `state` is the newest.
  std::string Next(Instant now, const StateText& state, const EventLog& log);

 private:
  bool IsDue(Instant now, const StateText& state) const;

  uint64_t after_;
  bool any_sent_ = false;
  uint64_t version_sent_ = 0;
  Instant taken_sent_;
  Instant sent_at_;
};

// The id of a Last-Event-ID header or of ?after=; 0 for what is none.
uint64_t EventIdOf(std::string_view text);

}  // namespace shardline
