#include "coordinator/ledger_keeper.h"

#include "absl/status/statusor.h"
#include "base/log.h"

namespace shardline {

LedgerKeeper::LedgerKeeper(StoreThread* store, Term term, SessionId floor, Instant now,
                           const Options& options)
    : store_(store),
      term_(term),
      options_(options),
      floor_(floor),
      abandon_at_(now + options.reattach_grace),
      floor_at_(now + options.floor_period) {}

void LedgerKeeper::OnTick(Instant now) {
  if (now >= abandon_at_) {
    abandon_at_ = Instant::InfiniteFuture();
    store_->Run([term = term_](Store& store) { return store.EndAbandoned(term); },
                [this, retry = now + options_.floor_period](const absl::StatusOr<int64_t>& ended) {
                  if (!ended.ok()) {
                    LogWarning("abandoned sessions not ended", {{"status", ended.status()}});
                    if (!StoreIsBroken(ended.status())) abandon_at_ = retry;
                  } else if (*ended > 0) {
                    LogInfo("sessions ended that nobody came back for", {{"sessions", *ended}});
                  }
                });
  }
  if (now >= floor_at_) {
    floor_at_ = Instant::InfiniteFuture();
    store_->Run([term = term_, retention = options_.retention](
                    Store& store) { return store.RaiseFloor(term, retention); },
                [this, next = now + options_.floor_period](const absl::StatusOr<SessionId>& floor) {
                  floor_at_ = next;
                  if (floor.ok()) {
                    floor_ = *floor;
                  } else {
                    LogWarning("floor not raised", {{"status", floor.status()}});
                  }
                });
  }
}

}  // namespace shardline
