#pragma once

// What the ledger needs from time to time: an end for sessions nobody came back for after a
// takeover, and a floor that rises. Lives on the coordinator's loop.

#include <algorithm>

#include "absl/time/time.h"
#include "base/id.h"
#include "base/instant.h"
#include "coordinator/store_thread.h"

namespace shardline {

class LedgerKeeper {
 public:
  struct Options {
    absl::Duration reattach_grace = absl::Seconds(30);  // For clients, after a takeover.
    absl::Duration retention = absl::Hours(24);         // Of keys and tokens of sessions.
    absl::Duration floor_period = absl::Minutes(1);
  };

  // `store` outlives this; `floor` is what it says now.
  LedgerKeeper(StoreThread* store, Term term, SessionId floor, Instant now, const Options& options);

  void OnTick(Instant now);
  Instant NextWake() const { return std::min(abandon_at_, floor_at_); }

  // Durable: no session below it is ever granted again, so nodes may forget it.
  SessionId floor() const { return floor_; }

 private:
  StoreThread* const store_;
  const Term term_;
  const Options options_;

  SessionId floor_;
  Instant abandon_at_;  // Infinite once done.
  Instant floor_at_;    // Infinite while one is under way.
};

}  // namespace shardline
