#pragma once

// The tables of the store's file, and the way to them from an older build's.

#include "absl/status/status.h"
#include "coordinator/store/sqlite_writer.h"

namespace shardline {

// Makes the tables in a fresh file, or brings those of schema 1 up to date, in one transaction.
// FailedPrecondition for a file that is not ours or has a schema this build does not know.
// DataLoss for a file that is damaged, or whose newest records do not fit their hash chain: the
// error names the record.
absl::Status PrepareSchema(SqliteWriter& writer);

}  // namespace shardline
