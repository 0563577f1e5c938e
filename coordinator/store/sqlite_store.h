#pragma once

// The Store on one SQLite file: write-ahead log, every commit flushed.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/store/store.h"

namespace shardline {

struct SqliteStoreOptions {
  absl::Duration busy_timeout = absl::Seconds(5);  // While another process writes.
  // Of the file, for all but terminal records, which have their room; 0: as the disk allows.
  int64_t pages_max = 0;
  const Clock* clock = nullptr;      // For ages of sessions; null: the system's. Outlives it.
  std::function<int64_t()> unix_ms;  // What records are stamped with; empty: the wall clock.
  std::string vfs;                   // SQLite's; empty: the system's.
  // Called once, on the thread that writes, with the error that broke the store (StoreIsBroken).
  std::function<void(const absl::Status&)> on_broken;
};

// Opens or creates the file; ":memory:" for a store that dies with its handle. Checks schema
// version and integrity first. DataLoss names a damaged file, FailedPrecondition one that is not
// ours or has a schema this build does not know. One thread at a time; two handles on one file
// are safe, and the one with the older term is refused.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(
    const std::string& path, const SqliteStoreOptions& options = SqliteStoreOptions());

}  // namespace shardline
