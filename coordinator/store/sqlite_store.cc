#include "coordinator/store/sqlite_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "coordinator/store/ledger_audit.h"
#include "coordinator/store/ledger_rules.h"
#include "coordinator/store/session_ages.h"
#include "coordinator/store/sqlite_db.h"
#include "coordinator/store/sqlite_ledger.h"
#include "coordinator/store/sqlite_schema.h"
#include "coordinator/store/sqlite_writer.h"

namespace shardline {
namespace {

constexpr uint64_t kVerifyPage = 1000;

class SqliteStore final : public Store {
 public:
  SqliteStore(std::unique_ptr<SqliteDb> db, const SqliteStoreOptions& options)
      : clock_(options.clock),
        writer_(std::move(db), options.pages_max, options.unix_ms, options.on_broken),
        ledger_(&writer_),
        ages_(clock_->Now(), 0) {}

  absl::Status Prepare();

  absl::StatusOr<Term> BeginTerm() override;
  absl::Status RaiseGeneration(Term term_at_least) override;
  absl::StatusOr<Incarnation> NextIncarnationBlock(Term term) override;
  absl::StatusOr<SessionId> CreateSession(Term term) override;
  absl::StatusOr<Epoch> GrantEpoch(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<AttemptKey> CreateAndGrant(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<Admission> Admit(Term term, const AttemptGrant& grant,
                                  const RequestIdentity& identity) override;
  absl::StatusOr<AttemptRecord> FinishAttempt(Term term, const AttemptKey& key,
                                              const AttemptRecord& record,
                                              absl::Span<const int32_t> tokens) override;
  absl::StatusOr<std::optional<AttemptRecord>> FindAttempt(const AttemptKey& key) override;
  absl::StatusOr<std::vector<UnfinishedAttempt>> OpenAttempts() override;
  absl::StatusOr<int64_t> FenceAllOpen(Term term) override;
  absl::StatusOr<int64_t> EndAbandoned(Term term) override;
  absl::StatusOr<std::vector<LedgerEntry>> ListRecords(const LedgerQuery& query) override;
  absl::StatusOr<uint64_t> CountRecords(const LedgerQuery& query) override;
  absl::StatusOr<LedgerVerdict> VerifyLedger() override;
  absl::StatusOr<SessionId> Floor() override;
  absl::StatusOr<SessionId> RaiseFloor(Term term, absl::Duration retention) override;
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
  using Session = SqliteLedger::Session;
  using Open = SqliteLedger::Open;

  // Inside a transaction:
  absl::StatusOr<Session> InsertedSession(Term term, const RequestIdentity& identity);
  absl::StatusOr<std::optional<Session>> FindKnown(const RequestIdentity& identity);
  // Fills in `admission` from a known session; false: its next epoch is to be granted.
  absl::StatusOr<bool> Answered(Term term, const Session& session, Admission& admission);
  absl::Status AuditRecords(LedgerAudit& audit);
  absl::Status AuditSessions(LedgerAudit& audit);

  SqliteDb& db() { return *writer_.db(); }

  const Clock* const clock_;
  SqliteWriter writer_;
  SqliteLedger ledger_;
  SessionAges ages_;
};

absl::Status SqliteStore::Prepare() {
  SL_RETURN_IF_ERROR(PrepareSchema(writer_));
  SL_ASSIGN_OR_RETURN(const uint64_t records, ledger_.RecordCount());
  ages_ = SessionAges(clock_->Now(), records);
  return absl::OkStatus();
}

absl::StatusOr<Term> SqliteStore::BeginTerm() {
  int64_t term = 0;
  SL_RETURN_IF_ERROR(writer_.WriteReserved([&]() -> absl::Status {
    SL_RETURN_IF_ERROR(writer_.Run("UPDATE meta SET term = term + 1"));
    SL_ASSIGN_OR_RETURN(term, db().QueryInt("SELECT term FROM meta"));
    return absl::OkStatus();
  }));
  return Term(static_cast<uint64_t>(term));
}

absl::Status SqliteStore::RaiseGeneration(Term term_at_least) {
  return writer_.WriteReserved([&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const int64_t old, db().QueryInt("SELECT generation FROM meta"));
    const auto generation = static_cast<uint64_t>(old) + 1;
    if (generation > kGenerationMax) return NumbersUsedUp(db().path());
    const uint64_t base = GenerationBase(generation);
    SL_RETURN_IF_ERROR(
        writer_.Run("UPDATE meta SET generation = ?, sequence = 0, term = max(term, ?), "
                    "incarnation = max(incarnation, ?), plan = max(plan, ?)",
                    generation, term_at_least.value(), base + 1, base));
    SL_ASSIGN_OR_RETURN(const int64_t term, db().QueryInt("SELECT term FROM meta"));
    SL_ASSIGN_OR_RETURN(const std::vector<Session> sessions, ledger_.WithoutOutcome(std::nullopt));
    for (const Session& session : sessions) {
      SL_RETURN_IF_ERROR(ledger_.End(Term(static_cast<uint64_t>(term)), session, kRestored));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Incarnation> SqliteStore::NextIncarnationBlock(Term term) {
  int64_t first = 0;
  SL_RETURN_IF_ERROR(writer_.WriteReservedIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(first, db().QueryInt("SELECT incarnation FROM meta"));
    return writer_.Run("UPDATE meta SET incarnation = incarnation + ?", kIncarnationBlockSize);
  }));
  return Incarnation(static_cast<uint64_t>(first));
}

absl::StatusOr<SessionId> SqliteStore::CreateSession(Term term) {
  SessionId session;
  SL_RETURN_IF_ERROR(writer_.WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(session, ledger_.InsertSession(term, {}));
    return absl::OkStatus();
  }));
  return session;
}

absl::StatusOr<Epoch> SqliteStore::GrantEpoch(Term term, const AttemptGrant& grant) {
  Epoch epoch;
  SL_RETURN_IF_ERROR(writer_.WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const std::optional<Session> session, ledger_.FindSession(grant.session));
    if (!session) return NoSession(grant.session);
    if (session->outcome != 0) {
      SL_ASSIGN_OR_RETURN(const AttemptRecord outcome, ledger_.RecordAt(session->outcome));
      return HasOutcome(grant.session, outcome.state);
    }
    SL_ASSIGN_OR_RETURN(epoch, ledger_.Grant(term, *session, grant));
    return absl::OkStatus();
  }));
  return epoch;
}

absl::StatusOr<AttemptKey> SqliteStore::CreateAndGrant(Term term, const AttemptGrant& grant) {
  SL_ASSIGN_OR_RETURN(const Admission admission, Admit(term, grant, {}));
  return admission.key;
}

absl::StatusOr<std::optional<SqliteStore::Session>> SqliteStore::FindKnown(
    const RequestIdentity& identity) {
  std::optional<Session> session;
  SL_ASSIGN_OR_RETURN(const SessionId floor, Floor());
  if (identity.session) {
    if (*identity.session < floor) return BelowFloor(*identity.session, floor);
    SL_ASSIGN_OR_RETURN(session, ledger_.FindSession(*identity.session));
    if (!session) return NoSession(*identity.session);
  } else if (!identity.key.empty()) {
    SL_ASSIGN_OR_RETURN(session, ledger_.FindSession(identity.tenant, identity.key));
  }
  if (session) {
    // The floor may be raised and the rows below it not yet gone.
    if (session->id < floor) return BelowFloor(session->id, floor);
    SL_RETURN_IF_ERROR(
        CheckSameRequest(session->id, identity, session->tenant, session->key, session->digest));
  }
  return session;
}

absl::StatusOr<bool> SqliteStore::Answered(Term term, const Session& session,
                                           Admission& admission) {
  admission.key = {session.id, session.epoch};
  if (session.outcome != 0) {
    SL_ASSIGN_OR_RETURN(admission.outcome, ledger_.RecordAt(session.outcome));
    SL_ASSIGN_OR_RETURN(admission.tokens, ledger_.Tokens(session.id));
    return true;
  }
  SL_ASSIGN_OR_RETURN(const std::optional<Open> open, ledger_.FindOpen(session.id));
  return open && open->term == term;
}

absl::StatusOr<SqliteStore::Session> SqliteStore::InsertedSession(Term term,
                                                                  const RequestIdentity& identity) {
  SL_ASSIGN_OR_RETURN(const SessionId id, ledger_.InsertSession(term, identity));
  return Session{.id = id, .tenant = identity.tenant, .key = identity.key};
}

absl::StatusOr<Admission> SqliteStore::Admit(Term term, const AttemptGrant& grant,
                                             const RequestIdentity& identity) {
  Admission admission;
  SL_RETURN_IF_ERROR(writer_.WriteIn(term, [&]() -> absl::Status {
    SL_RETURN_IF_ERROR(CheckIdentity(identity));
    SL_ASSIGN_OR_RETURN(std::optional<Session> session, FindKnown(identity));
    admission.known = session.has_value();
    if (session) {
      SL_ASSIGN_OR_RETURN(const bool answered, Answered(term, *session, admission));
      if (answered) return absl::OkStatus();
    } else {
      SL_ASSIGN_OR_RETURN(session, InsertedSession(term, identity));
    }
    SL_ASSIGN_OR_RETURN(const Epoch epoch, ledger_.Grant(term, *session, grant));
    admission.key = {session->id, epoch};
    admission.granted = true;
    return absl::OkStatus();
  }));
  return admission;
}

absl::StatusOr<AttemptRecord> SqliteStore::FinishAttempt(Term term, const AttemptKey& key,
                                                         const AttemptRecord& record,
                                                         absl::Span<const int32_t> tokens) {
  AttemptRecord standing = AsKept(record);
  SL_RETURN_IF_ERROR(writer_.WriteReservedIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const std::optional<Open> open, ledger_.FindOpen(key.session));
    if (!open || open->key != key) {
      SL_ASSIGN_OR_RETURN(const std::optional<AttemptRecord> found, ledger_.FindRecord(key));
      if (!found) return NoAttempt(key);
      standing = *found;
      return absl::OkStatus();
    }
    SL_RETURN_IF_ERROR(ledger_.Close(*open, standing));
    if (standing.state == AttemptState::kFenced || tokens.empty()) return absl::OkStatus();
    SL_ASSIGN_OR_RETURN(const std::optional<Session> session, ledger_.FindSession(key.session));
    const bool keep = session && !session->key.empty();
    return keep ? ledger_.KeepTokens(key.session, tokens) : absl::OkStatus();
  }));
  return standing;
}

absl::StatusOr<std::optional<AttemptRecord>> SqliteStore::FindAttempt(const AttemptKey& key) {
  SL_ASSIGN_OR_RETURN(std::optional<AttemptRecord> record, ledger_.FindRecord(key));
  if (record) return record;
  SL_ASSIGN_OR_RETURN(const std::optional<Open> open, ledger_.FindOpen(key.session));
  if (open && open->key == key) record.emplace();
  return record;
}

absl::StatusOr<std::vector<UnfinishedAttempt>> SqliteStore::OpenAttempts() {
  SL_ASSIGN_OR_RETURN(std::vector<Open> all, ledger_.AllOpen());
  std::vector<UnfinishedAttempt> open;
  for (Open& attempt : all) {
    open.push_back({.key = attempt.key, .term = attempt.term, .route = std::move(attempt.route)});
  }
  return open;
}

absl::StatusOr<int64_t> SqliteStore::FenceAllOpen(Term term) {
  int64_t fenced = 0;
  SL_RETURN_IF_ERROR(writer_.WriteReservedIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const std::vector<Open> open, ledger_.AllOpen());
    for (const Open& attempt : open) {
      SL_RETURN_IF_ERROR(ledger_.Close(attempt, TakenOverRecord()));
    }
    fenced = static_cast<int64_t>(open.size());
    return absl::OkStatus();
  }));
  return fenced;
}

absl::StatusOr<int64_t> SqliteStore::EndAbandoned(Term term) {
  int64_t ended = 0;
  SL_RETURN_IF_ERROR(writer_.WriteReservedIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(const std::vector<Session> sessions, ledger_.WithoutOutcome(term));
    for (const Session& session : sessions) {
      SL_RETURN_IF_ERROR(ledger_.End(term, session, kAbandoned));
    }
    ended = static_cast<int64_t>(sessions.size());
    return absl::OkStatus();
  }));
  return ended;
}

absl::StatusOr<std::vector<LedgerEntry>> SqliteStore::ListRecords(const LedgerQuery& query) {
  return ledger_.List(query);
}

absl::StatusOr<uint64_t> SqliteStore::CountRecords(const LedgerQuery& query) {
  return ledger_.Count(query);
}

absl::Status SqliteStore::AuditRecords(LedgerAudit& audit) {
  LedgerQuery query{.limit = kVerifyPage};
  while (true) {
    SL_ASSIGN_OR_RETURN(const std::vector<LedgerEntry> page, ledger_.List(query));
    for (const LedgerEntry& entry : page) audit.AddRecord(entry);
    if (page.size() < query.limit) return absl::OkStatus();
    query.after = page.back().sequence;
  }
}

absl::Status SqliteStore::AuditSessions(LedgerAudit& audit) {
  SL_ASSIGN_OR_RETURN(SqliteStatement row,
                      writer_.Query("SELECT id, s.epoch, outcome, a.epoch FROM sessions s "
                                    "LEFT JOIN attempts a ON a.session = id ORDER BY id"));
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool there, row.Step());
    if (!there) return absl::OkStatus();
    const SessionId session(row.Unsigned(0));
    const Epoch epoch(row.Unsigned(1));
    const Epoch open(row.Unsigned(3));
    audit.AddSession(session, epoch, row.Unsigned(2), open == epoch && open != Epoch());
    if (open != Epoch() && open != epoch) {
      audit.AddProblem(absl::StrCat("session ", session.value(), ": epoch ", open.value(),
                                    " is open, ", epoch.value(), " was granted last"));
    }
  }
}

absl::StatusOr<LedgerVerdict> SqliteStore::VerifyLedger() {
  LedgerAudit audit;
  // One snapshot for all reads.
  SL_RETURN_IF_ERROR(db().Execute("BEGIN"));
  absl::Status status = AuditRecords(audit);
  if (status.ok()) status = AuditSessions(audit);
  db().Execute("ROLLBACK").IgnoreError();
  SL_RETURN_IF_ERROR(status);
  SL_ASSIGN_OR_RETURN(const std::string pages, db().QueryText("PRAGMA quick_check(1)"));
  if (pages != "ok") audit.AddProblem(absl::StrCat("the file is damaged: ", pages));
  return audit.Verdict();
}

absl::StatusOr<SessionId> SqliteStore::Floor() {
  SL_ASSIGN_OR_RETURN(const int64_t floor, db().QueryInt("SELECT floor FROM meta"));
  return SessionId(static_cast<uint64_t>(floor));
}

absl::StatusOr<SessionId> SqliteStore::RaiseFloor(Term term, absl::Duration retention) {
  SessionId floor;
  SL_RETURN_IF_ERROR(writer_.WriteIn(term, [&]() -> absl::Status {
    SL_ASSIGN_OR_RETURN(floor, Floor());
    SL_ASSIGN_OR_RETURN(const uint64_t records, ledger_.RecordCount());
    const uint64_t older = ages_.Older(clock_->Now(), records, retention);
    SL_ASSIGN_OR_RETURN(SqliteStatement row,
                        writer_.Query("SELECT id, outcome FROM sessions WHERE id >= ? "
                                      "ORDER BY id LIMIT ?",
                                      floor.value(), kFloorStepMax));
    while (true) {
      SL_ASSIGN_OR_RETURN(const bool there, row.Step());
      if (!there || row.Int(1) == 0 || row.Unsigned(1) > older) break;
      floor = SessionId(row.Unsigned(0)).Next();
    }
    return writer_.Run("UPDATE meta SET floor = ?", floor.value());
  }));
  // Only now: a session that is unknown and not below the floor has never been.
  SL_RETURN_IF_ERROR(writer_.WriteIn(
      term, [&] { return writer_.Run("DELETE FROM sessions WHERE id < ?", floor.value()); }));
  return floor;
}

absl::StatusOr<PlanEpoch> SqliteStore::CreatePlan(Term term, std::string_view text) {
  int64_t epoch = 0;
  SL_RETURN_IF_ERROR(writer_.WriteIn(term, [&]() -> absl::Status {
    SL_RETURN_IF_ERROR(writer_.Run("UPDATE meta SET plan = plan + 1"));
    SL_ASSIGN_OR_RETURN(epoch, db().QueryInt("SELECT plan FROM meta"));
    return writer_.Run("INSERT INTO plans VALUES (?, ?, 0)", epoch, text);
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
      writer_.Query("SELECT epoch, text FROM plans WHERE forgotten = 0 ORDER BY epoch"));
  std::vector<StoredPlan> plans;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return plans;
    plans.push_back(StoredPlan{.epoch = PlanEpoch(find.Unsigned(0)), .text = find.Text(1)});
  }
}

absl::Status SqliteStore::ForgetPlan(Term term, PlanEpoch epoch) {
  return writer_.WriteIn(term, [&] {
    return writer_.Run("UPDATE plans SET forgotten = 1 WHERE epoch = ?", epoch.value());
  });
}

absl::Status SqliteStore::RememberNode(Term term, const NodeId& node, std::string_view address) {
  return writer_.WriteIn(term, [&] {
    return writer_.Run(
        "INSERT INTO nodes VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET address = excluded."
        "address",
        std::string_view(node.value()), address);
  });
}

absl::StatusOr<std::vector<NodeId>> SqliteStore::KnownNodes() {
  SL_ASSIGN_OR_RETURN(SqliteStatement find, writer_.Query("SELECT id FROM nodes ORDER BY id"));
  std::vector<NodeId> nodes;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return nodes;
    nodes.push_back(NodeId(find.Text(0)));
  }
}

absl::Status SqliteStore::ForgetNode(Term term, const NodeId& node) {
  return writer_.WriteIn(term, [&] {
    return writer_.Run("DELETE FROM nodes WHERE id = ?", std::string_view(node.value()));
  });
}

absl::Status SqliteStore::PutManifest(const FileKey& file, std::string_view manifest) {
  return writer_.Write([&] {
    return writer_.Run("INSERT OR REPLACE INTO manifests VALUES (?, ?, ?, ?)",
                       std::string_view(file.path), file.size, file.modified_ns, manifest);
  });
}

absl::StatusOr<std::optional<std::string>> SqliteStore::FindManifest(const FileKey& file) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_.Query("SELECT manifest FROM manifests "
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
  SqliteStoreOptions settled = options;
  if (settled.clock == nullptr) settled.clock = SystemClock();
  if (!settled.unix_ms) settled.unix_ms = [] { return absl::ToUnixMillis(absl::Now()); };
  SL_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDb> db,
                      SqliteDb::Open(path, settled.busy_timeout, settled.vfs));
  auto store = std::make_unique<SqliteStore>(std::move(db), settled);
  SL_RETURN_IF_ERROR(store->Prepare());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace shardline
