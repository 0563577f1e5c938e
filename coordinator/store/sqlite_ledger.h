#pragma once

// The ledger's rows: sessions, open attempts, records. What moves together is the caller's matter,
// who runs these inside a transaction of its own.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/sqlite_writer.h"
#include "coordinator/store/store.h"

namespace shardline {

// What ending a session may write: a record or two, their pages in the log and in the file.
inline constexpr int64_t kRoomBytes = 128 << 10;

class SqliteLedger {
 public:
  struct Session {
    SessionId id;
    Epoch epoch;
    uint64_t outcome = 0;
    std::string tenant;
    std::string key;
    uint64_t digest = 0;
  };
  struct Open {
    AttemptKey key;
    Term term;
    PlanEpoch plan;
    std::string route;
  };

  // `writer` outlives this.
  explicit SqliteLedger(SqliteWriter* writer) : writer_(writer) {}

  absl::StatusOr<std::optional<Session>> FindSession(SessionId id);
  absl::StatusOr<std::optional<Session>> FindSession(std::string_view tenant, std::string_view key);
  absl::StatusOr<std::vector<int32_t>> Tokens(SessionId id);
  absl::StatusOr<SessionId> InsertSession(Term term, const RequestIdentity& identity);

  absl::StatusOr<std::optional<Open>> FindOpen(SessionId id);
  absl::StatusOr<std::vector<Open>> AllOpen();
  // The next epoch of `session`; the attempt that was open is closed with the grant's record.
  absl::StatusOr<Epoch> Grant(Term term, const Session& session, const AttemptGrant& grant);
  // The record of `attempt` in its place; the session's outcome unless it is kFenced.
  absl::Status Close(const Open& attempt, const AttemptRecord& record);
  absl::Status KeepTokens(SessionId id, absl::Span<const int32_t> tokens);
  // Ends a session nobody will end: closes what is open, and records the next epoch as failed.
  absl::Status End(Term term, const Session& session, std::string_view why);
  // Those that have no outcome and, if `before` is given, were last granted to by an older term.
  absl::StatusOr<std::vector<Session>> WithoutOutcome(std::optional<Term> before);

  absl::StatusOr<std::optional<AttemptRecord>> FindRecord(const AttemptKey& key);
  absl::StatusOr<AttemptRecord> RecordAt(uint64_t sequence);
  absl::StatusOr<std::vector<LedgerEntry>> List(const LedgerQuery& query);
  absl::StatusOr<uint64_t> Count(const LedgerQuery& query);
  absl::StatusOr<uint64_t> RecordCount();
  // Numbers and chains `entry`, and gives its sequence.
  absl::StatusOr<uint64_t> AppendRecord(LedgerEntry entry);

 private:
  absl::Status HoldRoom();

  SqliteWriter* const writer_;
};

}  // namespace shardline
