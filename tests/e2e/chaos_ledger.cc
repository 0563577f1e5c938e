#include "tests/e2e/chaos_ledger.h"

#include <grpcpp/grpcpp.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"

namespace shardline::testing {
namespace {

using Outcome = ClientReport::Outcome;
using Records = std::map<uint64_t, std::map<uint64_t, v1::LedgerRecord>>;  // [session][epoch]

constexpr absl::Duration kAskTimeout = absl::Seconds(30);

// Whether the ledger may say `state` about a session whose client saw `client`.
bool Agrees(const ClientReport& client, const std::string& state) {
  // "Complete, but its record was not written in time": it may be by now.
  if (FailureKindOf(client.status) == FailureKind::kUncertain) return true;
  switch (client.outcome) {
    case Outcome::kCompleted:
      return state == "completed";
    case Outcome::kCancelled:
      return state == "cancelled";
    case Outcome::kExpired:
      return state == "expired";
    case Outcome::kFailed:
      return state == "failed" || state == "unverified";
    // The client did not hear it; but what ran is over.
    case Outcome::kLeft:
    case Outcome::kRefused:
    case Outcome::kLost:
      return true;
  }
  return false;
}

absl::StatusOr<Records> ReadRecords(Cluster& cluster, ChaosReport& report) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAskTimeout));
  auto reader = cluster.admin().ExportRecords(&context, v1::ListRecordsRequest());
  Records records;
  v1::LedgerRecord record;
  uint64_t sequence = 0;
  while (reader->Read(&record)) {
    if (record.sequence() != ++sequence) {
      report.violations.push_back(
          absl::StrCat("ledger: record ", record.sequence(), " where ", sequence, " comes next"));
    }
    const bool fresh = records[record.session()].emplace(record.epoch(), record).second;
    if (!fresh) {
      report.violations.push_back(absl::StrCat("ledger: attempt ", record.session(), "/",
                                               record.epoch(), " has two records"));
    }
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (!status.ok()) return status;
  report.records = static_cast<int64_t>(sequence);
  return records;
}

// The epochs are 1, 2, … and all but the last one were fenced.
void CheckAttempts(uint64_t session, const std::map<uint64_t, v1::LedgerRecord>& attempts,
                   ChaosReport& report) {
  uint64_t expected = 0;
  for (const auto& [epoch, record] : attempts) {
    if (epoch != ++expected) {
      report.violations.push_back(
          absl::StrCat("ledger: session ", session, " has no record of attempt ", expected));
      return;
    }
    if (epoch != attempts.size() && record.state() == "completed") {
      report.violations.push_back(absl::StrCat("ledger: session ", session,
                                               " went on after its attempt ", epoch, " completed"));
    }
    const bool billed = record.billed_tokens() > 0;
    if (billed && record.state() != "completed") {
      report.violations.push_back(absl::StrCat("ledger: attempt ", session, "/", epoch, " is ",
                                               record.state(), " and billed"));
    }
  }
}

void CheckOutcome(const ClientReport& client, const Records& records, ChaosReport& report) {
  if (client.sessions.empty()) return;
  const uint64_t session = client.sessions.back().value();
  const auto found = records.find(session);
  if (found == records.end()) {
    report.violations.push_back(absl::StrCat("ledger: no record of session ", session));
    return;
  }
  const v1::LedgerRecord& last = found->second.rbegin()->second;
  if (!Agrees(client, last.state())) {
    report.violations.push_back(absl::StrCat("ledger: session ", session, " is ", last.state(),
                                             ", its client saw ", OutcomeName(client.outcome), ": ",
                                             client.status.ToString()));
  }
  if (client.outcome == Outcome::kCompleted && last.billed_tokens() != client.tokens.size()) {
    report.violations.push_back(absl::StrCat("ledger: session ", session, " bills ",
                                             last.billed_tokens(), " tokens, its client has ",
                                             client.tokens.size()));
  }
}

}  // namespace

void CheckLedger(Cluster& cluster, const std::vector<ClientReport>& clients, ChaosReport& report) {
  report.records = -1;
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAskTimeout));
  v1::LedgerVerdict verdict;
  const grpc::Status asked =
      cluster.admin().VerifyLedger(&context, v1::VerifyLedgerRequest(), &verdict);
  if (asked.error_code() == grpc::StatusCode::UNIMPLEMENTED) return;
  if (!asked.ok()) {
    report.violations.push_back(absl::StrCat("ledger: ", asked.error_message()));
    return;
  }
  for (const std::string& problem : verdict.problems()) {
    report.violations.push_back(absl::StrCat("ledger: ", problem));
  }
  if (verdict.open_attempts() != 0) {
    report.violations.push_back(
        absl::StrCat("ledger: ", verdict.open_attempts(), " attempts have no terminal record"));
  }
  if (verdict.work_tokens() != verdict.billed_tokens() + verdict.wasted_tokens()) {
    report.violations.push_back(absl::StrCat("ledger: work ", verdict.work_tokens(), ", billed ",
                                             verdict.billed_tokens(), " and wasted ",
                                             verdict.wasted_tokens()));
  }
  const absl::StatusOr<Records> records = ReadRecords(cluster, report);
  if (!records.ok()) {
    report.violations.push_back(absl::StrCat("ledger: ", records.status().ToString()));
    return;
  }
  for (const auto& [session, attempts] : *records) CheckAttempts(session, attempts, report);
  for (const ClientReport& client : clients) CheckOutcome(client, *records, report);
}

}  // namespace shardline::testing
