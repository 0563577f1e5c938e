#include "coordinator/store/sqlite_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/store/ledger_audit.h"
#include "coordinator/store/sqlite_ledger.h"

namespace shardline {
namespace {

constexpr int64_t kApplicationId = 0x534C5244;  // "SLRD"
constexpr int64_t kSchemaVersion = 2;
constexpr uint64_t kRecordsCheckedAtOpen = 10000;

constexpr char kMeta[] = R"sql(
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  generation INTEGER NOT NULL,     -- Of the ledger; raised when a backup is restored.
  term INTEGER NOT NULL,
  sequence INTEGER NOT NULL,       -- Of the last session.
  incarnation INTEGER NOT NULL,    -- The next free one.
  plan INTEGER NOT NULL            -- The last plan's epoch.
);
INSERT INTO meta VALUES (1, 1, 0, 0, 1, 0);
)sql";

constexpr char kCatalog[] = R"sql(
CREATE TABLE plans (
  epoch INTEGER PRIMARY KEY,
  text BLOB NOT NULL,
  forgotten INTEGER NOT NULL
);
CREATE TABLE nodes (id TEXT PRIMARY KEY, address TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE manifests (
  path TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  modified_ns INTEGER NOT NULL,
  manifest BLOB NOT NULL
);
)sql";

// The file itself holds what must never be: two open attempts of a session (their primary key),
// two records of an attempt, a gap between records, a record that changes or goes.
constexpr char kLedger[] = R"sql(
ALTER TABLE meta ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,          -- The last one granted.
  term INTEGER NOT NULL,           -- That created it or granted last.
  outcome INTEGER NOT NULL,        -- Sequence of the record that ended it; 0 while there is none.
  room INTEGER NOT NULL,           -- Bytes of the reserve while there is none.
  tenant BLOB NOT NULL,
  key BLOB,                        -- NULL: asked without one.
  digest INTEGER NOT NULL,
  tokens BLOB NOT NULL
);
CREATE UNIQUE INDEX sessions_key ON sessions (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX sessions_live ON sessions (id, room) WHERE outcome = 0;
CREATE TABLE attempts (            -- Those that are open.
  session INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  term INTEGER NOT NULL,
  plan INTEGER NOT NULL,
  route BLOB NOT NULL,
  budget_ms INTEGER NOT NULL
);
CREATE TABLE records (             -- Those that are over.
  sequence INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  term INTEGER NOT NULL,
  plan INTEGER NOT NULL,
  route BLOB NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  prompt_tokens INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  work_tokens INTEGER NOT NULL,
  digest INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  detail BLOB NOT NULL,
  finished_ms INTEGER NOT NULL,
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  UNIQUE (session, epoch)
);
CREATE TRIGGER records_in_order BEFORE INSERT ON records
WHEN NEW.sequence != (SELECT coalesce(max(sequence), 0) + 1 FROM records)
BEGIN SELECT RAISE(ABORT, 'records are numbered without gaps'); END;
CREATE TRIGGER records_never_change BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'a record never changes'); END;
CREATE TRIGGER records_never_go BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'a record never goes'); END;
)sql";

// Schema 1 kept open and terminal attempts in one table, without chain and without work.
absl::Status MigrateFrom1(SqliteWriter& writer) {
  SL_RETURN_IF_ERROR(writer.db()->Execute(
      absl::StrCat("DROP INDEX attempts_one_open; ALTER TABLE sessions RENAME TO old_sessions; "
                   "ALTER TABLE attempts RENAME TO old_attempts;",
                   kLedger)));
  SL_RETURN_IF_ERROR(
      writer.Run("INSERT INTO attempts SELECT session, epoch, term, plan, route, budget_ms "
                 "FROM old_attempts WHERE state = 0"));
  SL_ASSIGN_OR_RETURN(
      SqliteStatement old,
      writer.Query("SELECT session, epoch, term, plan, route, state, prompt_tokens, tokens, kind, "
                   "detail FROM old_attempts WHERE state != 0 ORDER BY session, epoch"));
  SqliteLedger ledger(&writer);
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, old.Step());
    if (!row) break;
    LedgerEntry entry{.key = {SessionId(old.Unsigned(0)), Epoch(old.Unsigned(1))},
                      .term = Term(old.Unsigned(2)),
                      .plan = PlanEpoch(old.Unsigned(3)),
                      .route = old.Text(4),
                      .record = {.state = static_cast<AttemptState>(old.Int(5)),
                                 .prompt_tokens = old.Unsigned(6),
                                 .tokens = old.Unsigned(7),
                                 .work_tokens = old.Unsigned(6) + old.Unsigned(7),
                                 .kind = static_cast<FailureKind>(old.Int(8)),
                                 .detail = old.Text(9)}};
    SL_RETURN_IF_ERROR(ledger.AppendRecord(entry).status());
  }
  SL_RETURN_IF_ERROR(writer.Run(
      "INSERT INTO sessions SELECT id, epoch, 0, CASE WHEN outcome < 0 THEN 0 ELSE "
      "(SELECT sequence FROM records WHERE session = id AND records.epoch = old_sessions.epoch) "
      "END, ?, x'', NULL, 0, x'' FROM old_sessions",
      kRoomBytes));
  return writer.db()->Execute("DROP TABLE old_sessions; DROP TABLE old_attempts");
}

absl::Status CreateOrMigrate(SqliteWriter& writer) {
  SqliteDb& db = *writer.db();
  // Another process may have been faster.
  SL_ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  if (version == kSchemaVersion) return absl::OkStatus();
  if (version == 1) {
    SL_RETURN_IF_ERROR(MigrateFrom1(writer));
  } else {
    SL_RETURN_IF_ERROR(db.Execute(absl::StrCat(kMeta, kCatalog, kLedger)));
  }
  return db.Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId,
                                 "; PRAGMA user_version = ", kSchemaVersion));
}

// The newest records; the whole chain is for VerifyLedger.
absl::Status CheckTail(SqliteWriter& writer) {
  SqliteLedger ledger(&writer);
  SL_ASSIGN_OR_RETURN(const uint64_t count, ledger.RecordCount());
  const uint64_t after = count > kRecordsCheckedAtOpen ? count - kRecordsCheckedAtOpen - 1 : 0;
  SL_ASSIGN_OR_RETURN(
      const std::vector<LedgerEntry> entries,
      ledger.List({.session = {}, .state = {}, .after = after, .limit = count - after}));
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i == 0 && after > 0) continue;
    if (entries[i].sequence == after + i + 1 &&
        entries[i].hash == LedgerHash(i == 0 ? "" : entries[i - 1].hash, entries[i])) {
      continue;
    }
    return absl::DataLossError(absl::StrCat("store ", writer.db()->path(), ": record ",
                                            entries[i].sequence,
                                            " is damaged: its hash does not fit; restore the file "
                                            "from a backup, with --restore"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareSchema(SqliteWriter& writer) {
  SqliteDb& db = *writer.db();
  SL_ASSIGN_OR_RETURN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  SL_ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  SL_ASSIGN_OR_RETURN(const int64_t tables, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  const bool fresh = application == 0 && version == 0 && tables == 0;
  if (!fresh && application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", db.path(), " is another program's database"));
  }
  if (!fresh && (version < 1 || version > kSchemaVersion)) {
    return absl::FailedPreconditionError(absl::StrCat("store ", db.path(), " has schema ", version,
                                                      ", this build knows ", kSchemaVersion));
  }
  SL_ASSIGN_OR_RETURN(const std::string mode, db.QueryText("PRAGMA journal_mode = WAL"));
  if (mode != "wal" && mode != "memory") {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", db.path(), " cannot keep a write-ahead log here (", mode, ")"));
  }
  SL_RETURN_IF_ERROR(db.Execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));
  if (!fresh) {
    SL_ASSIGN_OR_RETURN(const std::string verdict, db.QueryText("PRAGMA quick_check(1)"));
    if (verdict != "ok") {
      return absl::DataLossError(absl::StrCat("store ", db.path(), " is damaged: ", verdict,
                                              "; restore it from a backup, with --restore"));
    }
  }
  if (version != kSchemaVersion) {
    SL_RETURN_IF_ERROR(writer.Write([&writer] { return CreateOrMigrate(writer); }));
  }
  return CheckTail(writer);
}

}  // namespace shardline
