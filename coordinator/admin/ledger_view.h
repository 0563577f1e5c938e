#pragma once

// The ledger on the wire: what an operator may ask, and records as they are told. Pure.

#include "absl/status/statusor.h"
#include "coordinator/store/store.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

// Records in one answer at most; ExportRecords has no such limit.
inline constexpr uint64_t kRecordsListedMax = 1000;

// kInvalidRequest for a state that there is not. `limit` 0 becomes `limit_default`.
absl::StatusOr<LedgerQuery> FromProto(const v1::ListRecordsRequest& request,
                                      uint64_t limit_default);

v1::LedgerRecord ToProto(const LedgerEntry& entry);
v1::LedgerVerdict ToProto(const LedgerVerdict& verdict);

}  // namespace shardline
