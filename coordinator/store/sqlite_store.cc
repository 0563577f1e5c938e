#include "coordinator/store/sqlite_store.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "coordinator/store/sqlite_db.h"

namespace shardline {
namespace {

constexpr int64_t kApplicationId = 0x534C5244;  // "SLRD"
constexpr int64_t kSchemaVersion = 1;
constexpr uint64_t kSequenceBits = 48;

// A grant takes the room of its terminal record along, so that ending an attempt never makes the
// file grow: `detail` is filled with zeros until then. The rest is for integers that get wider.
constexpr size_t kDetailBytesMax = 256;
constexpr size_t kReservedBytes = kDetailBytesMax + 32;
// Together they keep a row within its page: a longer one would be written anew before the old
// one is freed.
constexpr size_t kRouteBytesMax = 512;

// `attempts_one_open` lets the file itself hold that a session has one open attempt at most.
constexpr char kSchema[] = R"sql(
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  generation INTEGER NOT NULL,     -- Of the ledger; raised when a backup is restored.
  term INTEGER NOT NULL,
  sequence INTEGER NOT NULL,       -- Of the last session.
  incarnation INTEGER NOT NULL,    -- The next free one.
  plan INTEGER NOT NULL            -- The last plan's epoch.
);
INSERT INTO meta VALUES (1, 1, 0, 0, 1, 0);
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,          -- The last one granted.
  outcome INTEGER NOT NULL         -- -1 while there is none; else the last attempt's state.
);
CREATE TABLE attempts (
  session INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  term INTEGER NOT NULL,
  plan INTEGER NOT NULL,
  route TEXT NOT NULL,
  budget_ms INTEGER NOT NULL,
  state INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (session, epoch)
) WITHOUT ROWID;
CREATE UNIQUE INDEX attempts_one_open ON attempts (session) WHERE state = 0;
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

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<SqliteDb> db) : db_(std::move(db)) {}

  absl::Status Prepare(const SqliteStoreOptions& options);

  absl::StatusOr<Term> BeginTerm() override;
  absl::StatusOr<Incarnation> NextIncarnationBlock(Term term) override;
  absl::StatusOr<SessionId> CreateSession(Term term) override;
  absl::StatusOr<Epoch> GrantEpoch(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<AttemptKey> CreateAndGrant(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<AttemptRecord> FinishAttempt(Term term, const AttemptKey& key,
                                              const AttemptRecord& record,
                                              absl::Span<const int32_t> tokens) override;
  absl::StatusOr<Admission> Admit(Term term, const AttemptGrant& grant,
                                  const RequestIdentity& identity) override;
  absl::StatusOr<std::vector<LedgerEntry>> ListRecords(const LedgerQuery& query) override;
  absl::StatusOr<uint64_t> CountRecords(const LedgerQuery& query) override;
  absl::StatusOr<LedgerVerdict> VerifyLedger() override;
  absl::StatusOr<SessionId> Floor() override;
  absl::StatusOr<SessionId> RaiseFloor(Term term, absl::Duration retention) override;
  absl::StatusOr<std::optional<AttemptRecord>> FindAttempt(const AttemptKey& key) override;
  absl::StatusOr<std::vector<UnfinishedAttempt>> OpenAttempts() override;
  absl::StatusOr<int64_t> FenceAllOpen(Term term) override;
  absl::Status RaiseGeneration(Term) override { return absl::UnimplementedError("generations"); }
  absl::StatusOr<int64_t> EndAbandoned(Term) override { return 0; }
  absl::StatusOr<PlanEpoch> CreatePlan(Term term, std::string_view text) override;
  absl::StatusOr<std::optional<StoredPlan>> LatestPlan() override;
  absl::StatusOr<std::vector<StoredPlan>> Plans() override;
  absl::Status ForgetPlan(Term term, PlanEpoch epoch) override;
  absl::Status RememberNode(Term term, const NodeId& node, std::string_view address) override;
  absl::StatusOr<std::vector<NodeId>> KnownNodes() override;
  absl::Status ForgetNode(Term term, const NodeId& node) override;
  absl::Status PutManifest(const FileKey& file, std::string_view manifest) override;
  absl::StatusOr<std::optional<std::string>> FindManifest(const FileKey& file) override;

 private:
  // Runs `body` between BEGIN IMMEDIATE and COMMIT; anything but OK rolls back.
  absl::Status Write(const std::function<absl::Status()>& body);
  // As Write, refused unless `term` is the newest one.
  absl::Status WriteIn(Term term, const std::function<absl::Status()>& body);

  // Inside a transaction:
  absl::StatusOr<SessionId> InsertSession();
  absl::StatusOr<Epoch> InsertAttempt(Term term, const AttemptGrant& grant);

  // `sql` with its parameters bound in order, run to its end.
  template <typename... Values>
  absl::Status Run(std::string_view sql, const Values&... values) {
    SL_ASSIGN_OR_RETURN(SqliteStatement statement, db_->Prepare(sql));
    (statement.Bind(values), ...);
    return statement.Run();
  }

  const std::unique_ptr<SqliteDb> db_;
};

absl::Status SqliteStore::Prepare(const SqliteStoreOptions& options) {
  SL_ASSIGN_OR_RETURN(const int64_t application, db_->QueryInt("PRAGMA application_id"));
  SL_ASSIGN_OR_RETURN(const int64_t version, db_->QueryInt("PRAGMA user_version"));
  SL_ASSIGN_OR_RETURN(const int64_t tables, db_->QueryInt("SELECT count(*) FROM sqlite_schema"));
  const bool fresh = application == 0 && version == 0 && tables == 0;
  if (!fresh && application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", db_->path(), " is another program's database"));
  }
  if (!fresh && version != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", db_->path(), " has schema ", version, ", this build knows ", kSchemaVersion));
  }
  SL_ASSIGN_OR_RETURN(const std::string mode, db_->QueryText("PRAGMA journal_mode = WAL"));
  if (mode != "wal" && mode != "memory") {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", db_->path(), " cannot keep a write-ahead log here (", mode, ")"));
  }
  SL_RETURN_IF_ERROR(db_->Execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));
  if (options.pages_max > 0) {
    SL_RETURN_IF_ERROR(
        db_->QueryInt(absl::StrCat("PRAGMA max_page_count = ", options.pages_max)).status());
  }
  if (!fresh) {
    SL_ASSIGN_OR_RETURN(const std::string verdict, db_->QueryText("PRAGMA quick_check(1)"));
    if (verdict != "ok") {
      return absl::DataLossError(absl::StrCat("store ", db_->path(), " is damaged: ", verdict,
                                              "; restore it from a backup"));
    }
    return absl::OkStatus();
  }
  return Write([&]() -> absl::Status {
    // Another process may have been faster.
    SL_ASSIGN_OR_RETURN(const int64_t now_there, db_->QueryInt("PRAGMA user_version"));
    if (now_there == kSchemaVersion) return absl::OkStatus();
    return db_->Execute(absl::StrCat(kSchema, "PRAGMA application_id = ", kApplicationId,
                                     "; PRAGMA user_version = ", kSchemaVersion));
  });
}

absl::Status SqliteStore::Write(const std::function<absl::Status()>& body) {
  SL_RETURN_IF_ERROR(db_->Execute("BEGIN IMMEDIATE"));
  absl::Status status = body();
  if (status.ok()) status = db_->Execute("COMMIT");
  if (!status.ok()) {
    // After some errors SQLite has rolled back by itself, and there is nothing left to do.
    db_->Execute("ROLLBACK").IgnoreError();
  }
  return status;
}

absl::Status SqliteStore::WriteIn(Term term, const std::function<absl::Status()>& body) {
  return Write([&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const int64_t newest, db_->QueryInt("SELECT term FROM meta"));
    if (term.value() != static_cast<uint64_t>(newest)) {
      return MakeFailure(FailureKind::kStaleEpoch,
                         absl::StrCat("store ", db_->path(), ": term ", term.value(),
                                      " is not the newest, which is ", newest));
    }
    return body();
  });
}

absl::StatusOr<Term> SqliteStore::BeginTerm() {
  int64_t term = 0;
  SL_RETURN_IF_ERROR(Write([&]() -> absl::Status {
    SL_RETURN_IF_ERROR(Run("UPDATE meta SET term = term + 1"));
    SL_ASSIGN_OR_RETURN(term, db_->QueryInt("SELECT term FROM meta"));
    return absl::OkStatus();
  }));
  return Term(static_cast<uint64_t>(term));
}

absl::StatusOr<Incarnation> SqliteStore::NextIncarnationBlock(Term term) {
  int64_t first = 0;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(first, db_->QueryInt("SELECT incarnation FROM meta"));
    return Run("UPDATE meta SET incarnation = incarnation + ?", kIncarnationBlockSize);
  }));
  return Incarnation(static_cast<uint64_t>(first));
}

absl::StatusOr<SessionId> SqliteStore::InsertSession() {
  SL_RETURN_IF_ERROR(Run("UPDATE meta SET sequence = sequence + 1"));
  SL_ASSIGN_OR_RETURN(const int64_t generation, db_->QueryInt("SELECT generation FROM meta"));
  SL_ASSIGN_OR_RETURN(const int64_t sequence, db_->QueryInt("SELECT sequence FROM meta"));
  if (sequence >> kSequenceBits != 0) {
    return absl::OutOfRangeError(
        absl::StrCat("store ", db_->path(), ": all session numbers are used"));
  }
  const SessionId session((static_cast<uint64_t>(generation) << kSequenceBits) |
                          static_cast<uint64_t>(sequence));
  SL_RETURN_IF_ERROR(Run("INSERT INTO sessions VALUES (?, 0, -1)", session.value()));
  return session;
}

absl::StatusOr<Epoch> SqliteStore::InsertAttempt(Term term, const AttemptGrant& grant) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      db_->Prepare("SELECT epoch, outcome FROM sessions WHERE id = ?"));
  SL_ASSIGN_OR_RETURN(const bool known, find.Bind(grant.session.value()).Step());
  if (!known) {
    return absl::NotFoundError(absl::StrCat("no session ", grant.session.value()));
  }
  if (find.Int(1) >= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", grant.session.value(), " has its outcome: ",
                     std::string(AttemptStateName(static_cast<AttemptState>(find.Int(1))))));
  }
  const Epoch epoch(find.Unsigned(0) + 1);
  SL_RETURN_IF_ERROR(
      Run("UPDATE attempts SET state = ?, detail = '' WHERE session = ? AND state = ?",
          static_cast<int64_t>(AttemptState::kFenced), grant.session.value(),
          static_cast<int64_t>(AttemptState::kOpen)));
  SL_RETURN_IF_ERROR(
      Run("UPDATE sessions SET epoch = ? WHERE id = ?", epoch.value(), grant.session.value()));
  SL_RETURN_IF_ERROR(Run("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, zeroblob(?))",
                         grant.session.value(), epoch.value(), term.value(), grant.plan.value(),
                         std::string_view(grant.route).substr(0, kRouteBytesMax),
                         absl::ToInt64Milliseconds(grant.budget),
                         static_cast<int64_t>(AttemptState::kOpen), kReservedBytes));
  return epoch;
}

absl::StatusOr<SessionId> SqliteStore::CreateSession(Term term) {
  SessionId session;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(session, InsertSession());
    return absl::OkStatus();
  }));
  return session;
}

absl::StatusOr<Epoch> SqliteStore::GrantEpoch(Term term, const AttemptGrant& grant) {
  Epoch epoch;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(epoch, InsertAttempt(term, grant));
    return absl::OkStatus();
  }));
  return epoch;
}

absl::StatusOr<AttemptKey> SqliteStore::CreateAndGrant(Term term, const AttemptGrant& grant) {
  AttemptKey key;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(key.session, InsertSession());
    AttemptGrant first = grant;
    first.session = key.session;
    SL_ASSIGN_OR_RETURN(key.epoch, InsertAttempt(term, first));
    return absl::OkStatus();
  }));
  return key;
}

absl::StatusOr<Admission> SqliteStore::Admit(Term term, const AttemptGrant& grant,
                                             const RequestIdentity&) {
  SL_ASSIGN_OR_RETURN(const AttemptKey key, CreateAndGrant(term, grant));
  return Admission{.key = key, .granted = true};
}

absl::StatusOr<std::vector<LedgerEntry>> SqliteStore::ListRecords(const LedgerQuery&) {
  return absl::UnimplementedError("list records");
}

absl::StatusOr<uint64_t> SqliteStore::CountRecords(const LedgerQuery&) {
  return absl::UnimplementedError("count records");
}

absl::StatusOr<LedgerVerdict> SqliteStore::VerifyLedger() {
  return absl::UnimplementedError("verify ledger");
}

absl::StatusOr<SessionId> SqliteStore::Floor() { return SessionId(); }

absl::StatusOr<SessionId> SqliteStore::RaiseFloor(Term, absl::Duration) { return SessionId(); }

absl::StatusOr<AttemptRecord> SqliteStore::FinishAttempt(Term term, const AttemptKey& key,
                                                         const AttemptRecord& record,
                                                         absl::Span<const int32_t>) {
  SL_CHECK(record.state != AttemptState::kOpen);
  AttemptRecord standing = record;
  standing.detail.resize(std::min(standing.detail.size(), kDetailBytesMax));
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(std::optional<AttemptRecord> found, FindAttempt(key));
    if (!found) {
      return absl::NotFoundError(
          absl::StrCat("no attempt ", key.session.value(), "/", key.epoch.value()));
    }
    if (found->state != AttemptState::kOpen) {
      standing = *found;
      return absl::OkStatus();
    }
    SL_RETURN_IF_ERROR(
        Run("UPDATE attempts SET state = ?, prompt_tokens = ?, tokens = ?, kind = ?, detail = ? "
            "WHERE session = ? AND epoch = ? AND state = ?",
            static_cast<int64_t>(record.state), record.prompt_tokens, record.tokens,
            static_cast<int64_t>(record.kind), std::string_view(standing.detail),
            key.session.value(), key.epoch.value(), static_cast<int64_t>(AttemptState::kOpen)));
    // A fenced attempt says nothing of its session: the next one will.
    if (record.state == AttemptState::kFenced) return absl::OkStatus();
    return Run("UPDATE sessions SET outcome = ? WHERE id = ?", static_cast<int64_t>(record.state),
               key.session.value());
  }));
  return standing;
}

absl::StatusOr<std::optional<AttemptRecord>> SqliteStore::FindAttempt(const AttemptKey& key) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      db_->Prepare("SELECT state, prompt_tokens, tokens, kind, detail "
                                   "FROM attempts WHERE session = ? AND epoch = ?"));
  SL_ASSIGN_OR_RETURN(const bool known,
                      find.Bind(key.session.value()).Bind(key.epoch.value()).Step());
  if (!known) return std::optional<AttemptRecord>();
  const bool open = find.Int(0) == static_cast<int64_t>(AttemptState::kOpen);
  return std::optional<AttemptRecord>(AttemptRecord{.state = static_cast<AttemptState>(find.Int(0)),
                                                    .prompt_tokens = find.Unsigned(1),
                                                    .tokens = find.Unsigned(2),
                                                    .kind = static_cast<FailureKind>(find.Int(3)),
                                                    .detail = open ? std::string() : find.Text(4)});
}

absl::StatusOr<std::vector<UnfinishedAttempt>> SqliteStore::OpenAttempts() {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      db_->Prepare("SELECT session, epoch, term, route FROM attempts "
                                   "WHERE state = 0 ORDER BY session"));
  std::vector<UnfinishedAttempt> open;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return open;
    open.push_back(UnfinishedAttempt{.key = {SessionId(find.Unsigned(0)), Epoch(find.Unsigned(1))},
                               .term = Term(find.Unsigned(2)),
                               .route = find.Text(3)});
  }
}

absl::StatusOr<int64_t> SqliteStore::FenceAllOpen(Term term) {
  int64_t fenced = 0;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_RETURN_IF_ERROR(Run("UPDATE attempts SET state = ?, detail = 'taken over' WHERE state = ?",
                           static_cast<int64_t>(AttemptState::kFenced),
                           static_cast<int64_t>(AttemptState::kOpen)));
    SL_ASSIGN_OR_RETURN(fenced, db_->QueryInt("SELECT changes()"));
    return absl::OkStatus();
  }));
  return fenced;
}

absl::StatusOr<PlanEpoch> SqliteStore::CreatePlan(Term term, std::string_view text) {
  int64_t epoch = 0;
  SL_RETURN_IF_ERROR(WriteIn(term, [&]() -> absl::Status {
    SL_RETURN_IF_ERROR(Run("UPDATE meta SET plan = plan + 1"));
    SL_ASSIGN_OR_RETURN(epoch, db_->QueryInt("SELECT plan FROM meta"));
    return Run("INSERT INTO plans VALUES (?, ?, 0)", epoch, text);
  }));
  return PlanEpoch(static_cast<uint64_t>(epoch));
}

absl::StatusOr<std::optional<StoredPlan>> SqliteStore::LatestPlan() {
  SL_ASSIGN_OR_RETURN(std::vector<StoredPlan> plans, Plans());
  if (plans.empty()) return std::optional<StoredPlan>();
  return std::optional<StoredPlan>(std::move(plans.back()));
}

absl::StatusOr<std::vector<StoredPlan>> SqliteStore::Plans() {
  SL_ASSIGN_OR_RETURN(
      SqliteStatement find,
      db_->Prepare("SELECT epoch, text FROM plans WHERE forgotten = 0 ORDER BY epoch"));
  std::vector<StoredPlan> plans;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return plans;
    plans.push_back(StoredPlan{.epoch = PlanEpoch(find.Unsigned(0)), .text = find.Text(1)});
  }
}

absl::Status SqliteStore::ForgetPlan(Term term, PlanEpoch epoch) {
  return WriteIn(
      term, [&] { return Run("UPDATE plans SET forgotten = 1 WHERE epoch = ?", epoch.value()); });
}

absl::Status SqliteStore::RememberNode(Term term, const NodeId& node, std::string_view address) {
  return WriteIn(term, [&] {
    return Run(
        "INSERT INTO nodes VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET address = excluded."
        "address",
        std::string_view(node.value()), address);
  });
}

absl::StatusOr<std::vector<NodeId>> SqliteStore::KnownNodes() {
  SL_ASSIGN_OR_RETURN(SqliteStatement find, db_->Prepare("SELECT id FROM nodes ORDER BY id"));
  std::vector<NodeId> nodes;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return nodes;
    nodes.push_back(NodeId(find.Text(0)));
  }
}

absl::Status SqliteStore::ForgetNode(Term term, const NodeId& node) {
  return WriteIn(
      term, [&] { return Run("DELETE FROM nodes WHERE id = ?", std::string_view(node.value())); });
}

absl::Status SqliteStore::PutManifest(const FileKey& file, std::string_view manifest) {
  return Write([&] {
    return Run("INSERT OR REPLACE INTO manifests VALUES (?, ?, ?, ?)", std::string_view(file.path),
               file.size, file.modified_ns, manifest);
  });
}

absl::StatusOr<std::optional<std::string>> SqliteStore::FindManifest(const FileKey& file) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      db_->Prepare("SELECT manifest FROM manifests "
                                   "WHERE path = ? AND size = ? AND modified_ns = ?"));
  SL_ASSIGN_OR_RETURN(
      const bool row,
      find.Bind(std::string_view(file.path)).Bind(file.size).Bind(file.modified_ns).Step());
  if (!row) return std::optional<std::string>();
  return std::optional<std::string>(find.Text(0));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path,
                                                       const SqliteStoreOptions& options) {
  SL_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDb> db, SqliteDb::Open(path, options.busy_timeout));
  auto store = std::make_unique<SqliteStore>(std::move(db));
  SL_RETURN_IF_ERROR(store->Prepare(options));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace shardline
