#pragma once

// The Store on one SQLite file: write-ahead log, every commit flushed.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/store/store.h"

namespace shardline {

// Opens or creates the file; ":memory:" for a store that dies with its handle. Checks schema
// version and integrity first. DataLoss names a damaged file, FailedPrecondition a schema this
// build does not know. One thread at a time; two handles on one file are safe, and the one with
// the older term is refused.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace shardline
