#pragma once

// The Store on one SQLite file: write-ahead log, every commit flushed.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/store.h"

namespace shardline {

struct SqliteStoreOptions {
  absl::Duration busy_timeout = absl::Seconds(5);  // While another process writes.
  int64_t pages_max = 0;                           // Of the file; 0: as the disk allows.
};

// Opens or creates the file; ":memory:" for a store that dies with its handle. Checks schema
// version and integrity first. DataLoss names a damaged file, FailedPrecondition one that is not
// ours or has a schema this build does not know. One thread at a time; two handles on one file
// are safe, and the one with the older term is refused.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(
    const std::string& path, const SqliteStoreOptions& options = SqliteStoreOptions());

}  // namespace shardline
