#pragma once

// What shardctl prints of sessions and of the ledger. Pure: proto in, text out.

#include <optional>
#include <string>

#include "coordinator/ctl/views.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

std::string SessionListView(const v1::SessionList& sessions, const ViewOptions& options);
// `live` is absent for a session that has ended; `records` are its own, in order.
std::string SessionView(const std::optional<v1::SessionSummary>& live,
                        const v1::RecordList& records, const ViewOptions& options);
std::string RecordListView(const v1::RecordList& records, const ViewOptions& options);
std::string VerdictView(const v1::LedgerVerdict& verdict, const ViewOptions& options);

// RFC 4180: a cell that holds a comma, a quote or a line's end stands in quotes. Lines end in \n.
std::string RecordCsvHeader();
std::string RecordCsvLine(const v1::LedgerRecord& record);

}  // namespace shardline
