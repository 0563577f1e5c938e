#include "coordinator/store/sqlite_ledger.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/store/ledger_audit.h"
#include "coordinator/store/ledger_rules.h"

namespace shardline {
namespace {

constexpr char kSessionColumns[] = "SELECT id, epoch, outcome, tenant, key, digest FROM sessions ";

SqliteLedger::Session SessionRow(const SqliteStatement& row) {
  return {.id = SessionId(row.Unsigned(0)),
          .epoch = Epoch(row.Unsigned(1)),
          .outcome = row.Unsigned(2),
          .tenant = row.Text(3),
          .key = row.Text(4),
          .digest = row.Unsigned(5)};
}

absl::StatusOr<std::optional<SqliteLedger::Session>> OneSession(
    absl::StatusOr<SqliteStatement> find) {
  SL_RETURN_IF_ERROR(find.status());
  SL_ASSIGN_OR_RETURN(const bool known, find->Step());
  if (!known) return std::optional<SqliteLedger::Session>();
  return std::optional(SessionRow(*find));
}

constexpr char kOpenColumns[] = "SELECT session, epoch, term, plan, route FROM attempts ";

SqliteLedger::Open OpenRow(const SqliteStatement& row) {
  return {.key = {SessionId(row.Unsigned(0)), Epoch(row.Unsigned(1))},
          .term = Term(row.Unsigned(2)),
          .plan = PlanEpoch(row.Unsigned(3)),
          .route = row.Text(4)};
}

constexpr char kRecordColumns[] =
    "SELECT sequence, session, epoch, term, plan, route, state, prompt_tokens, tokens, "
    "work_tokens, digest, kind, detail, finished_ms, hash FROM records ";

LedgerEntry EntryRow(const SqliteStatement& row) {
  return {.sequence = row.Unsigned(0),
          .key = {SessionId(row.Unsigned(1)), Epoch(row.Unsigned(2))},
          .term = Term(row.Unsigned(3)),
          .plan = PlanEpoch(row.Unsigned(4)),
          .route = row.Text(5),
          .record = {.state = static_cast<AttemptState>(row.Int(6)),
                     .prompt_tokens = row.Unsigned(7),
                     .tokens = row.Unsigned(8),
                     .work_tokens = row.Unsigned(9),
                     .digest = row.Unsigned(10),
                     .kind = static_cast<FailureKind>(row.Int(11)),
                     .detail = row.Text(12)},
          .finished_unix_ms = row.Int(13),
          .hash = row.Text(14)};
}

// What `query` adds to a WHERE; numbers alone, so nothing is to be quoted.
std::string Filter(const LedgerQuery& query) {
  std::string filter;
  if (query.session) {
    absl::StrAppend(&filter, " AND session = ", static_cast<int64_t>(query.session->value()));
  }
  if (query.state) absl::StrAppend(&filter, " AND state = ", static_cast<int32_t>(*query.state));
  return filter;
}

int64_t Clamped(uint64_t value) {
  return static_cast<int64_t>(
      std::min(value, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

}  // namespace

absl::StatusOr<std::optional<SqliteLedger::Session>> SqliteLedger::FindSession(SessionId id) {
  return OneSession(writer_->Query(absl::StrCat(kSessionColumns, "WHERE id = ?"), id.value()));
}

absl::StatusOr<std::optional<SqliteLedger::Session>> SqliteLedger::FindSession(
    std::string_view tenant, std::string_view key) {
  return OneSession(
      writer_->Query(absl::StrCat(kSessionColumns, "WHERE tenant = ? AND key = ?"), tenant, key));
}

absl::StatusOr<std::vector<int32_t>> SqliteLedger::Tokens(SessionId id) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_->Query("SELECT tokens FROM sessions WHERE id = ?", id.value()));
  SL_RETURN_IF_ERROR(find.Step().status());
  const std::string bytes = find.Text(0);
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(int32_t));
  return tokens;
}

absl::Status SqliteLedger::KeepTokens(SessionId id, absl::Span<const int32_t> tokens) {
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof(int32_t));
  return writer_->Run("UPDATE sessions SET tokens = ? WHERE id = ?", bytes, id.value());
}

absl::StatusOr<SessionId> SqliteLedger::InsertSession(Term term, const RequestIdentity& identity) {
  SqliteDb& db = *writer_->db();
  SL_RETURN_IF_ERROR(writer_->Run("UPDATE meta SET sequence = sequence + 1"));
  SL_ASSIGN_OR_RETURN(const int64_t generation, db.QueryInt("SELECT generation FROM meta"));
  SL_ASSIGN_OR_RETURN(const int64_t sequence, db.QueryInt("SELECT sequence FROM meta"));
  if (sequence >> kSequenceBits != 0) return NumbersUsedUp(db.path());
  const SessionId session(GenerationBase(static_cast<uint64_t>(generation)) |
                          static_cast<uint64_t>(sequence));
  SL_RETURN_IF_ERROR(writer_->Run(
      "INSERT INTO sessions VALUES (?, 0, ?, 0, ?, ?, nullif(?, x''), ?, x'')", session.value(),
      term.value(), kRoomBytes, identity.tenant, identity.key, identity.digest));
  return session;
}

absl::StatusOr<std::optional<SqliteLedger::Open>> SqliteLedger::FindOpen(SessionId id) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_->Query(absl::StrCat(kOpenColumns, "WHERE session = ?"), id.value()));
  SL_ASSIGN_OR_RETURN(const bool open, find.Step());
  return open ? std::optional(OpenRow(find)) : std::nullopt;
}

absl::StatusOr<std::vector<SqliteLedger::Open>> SqliteLedger::AllOpen() {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_->Query(absl::StrCat(kOpenColumns, "ORDER BY session")));
  std::vector<Open> open;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return open;
    open.push_back(OpenRow(find));
  }
}

absl::Status SqliteLedger::HoldRoom() {
  SL_ASSIGN_OR_RETURN(
      const int64_t bytes,
      writer_->db()->QueryInt("SELECT coalesce(sum(room), 0) FROM sessions WHERE outcome = 0"));
  return writer_->Hold(bytes);
}

absl::StatusOr<Epoch> SqliteLedger::Grant(Term term, const Session& session,
                                          const AttemptGrant& grant) {
  SL_ASSIGN_OR_RETURN(const std::optional<Open> open, FindOpen(session.id));
  if (open) {
    SL_RETURN_IF_ERROR(writer_->Run("DELETE FROM attempts WHERE session = ?", session.id.value()));
    SL_RETURN_IF_ERROR(AppendRecord({.key = open->key,
                                     .term = open->term,
                                     .plan = open->plan,
                                     .route = open->route,
                                     .record = PreviousRecord(grant),
                                     .finished_unix_ms = writer_->UnixMs()})
                           .status());
  }
  const Epoch epoch = session.epoch.Next();
  // Kept tokens are written to the log and to the file.
  const int64_t room =
      kRoomBytes + (session.key.empty() ? 0 : 3 * sizeof(int32_t) * int64_t{grant.tokens_max});
  SL_RETURN_IF_ERROR(
      writer_->Run("UPDATE sessions SET epoch = ?, term = ?, room = max(room, ?) WHERE id = ?",
                   epoch.value(), term.value(), room, session.id.value()));
  SL_RETURN_IF_ERROR(writer_->Run("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)",
                                  session.id.value(), epoch.value(), term.value(),
                                  grant.plan.value(), Cut(grant.route, kRouteBytesMax),
                                  absl::ToInt64Milliseconds(grant.budget)));
  SL_RETURN_IF_ERROR(HoldRoom());
  return epoch;
}

absl::Status SqliteLedger::Close(const Open& attempt, const AttemptRecord& record) {
  SL_RETURN_IF_ERROR(
      writer_->Run("DELETE FROM attempts WHERE session = ?", attempt.key.session.value()));
  SL_ASSIGN_OR_RETURN(const uint64_t sequence,
                      AppendRecord({.key = attempt.key,
                                    .term = attempt.term,
                                    .plan = attempt.plan,
                                    .route = attempt.route,
                                    .record = record,
                                    .finished_unix_ms = writer_->UnixMs()}));
  // A fenced attempt says nothing of its session: the next one will.
  if (record.state == AttemptState::kFenced) return absl::OkStatus();
  return writer_->Run("UPDATE sessions SET outcome = ? WHERE id = ?", sequence,
                      attempt.key.session.value());
}

absl::Status SqliteLedger::End(Term term, const Session& session, std::string_view why) {
  SL_ASSIGN_OR_RETURN(const std::optional<Open> open, FindOpen(session.id));
  if (open) {
    SL_RETURN_IF_ERROR(Close(*open, TakenOverRecord()));
  }
  const Epoch epoch = session.epoch.Next();
  SL_RETURN_IF_ERROR(writer_->Run("UPDATE sessions SET epoch = ?, term = ? WHERE id = ?",
                                  epoch.value(), term.value(), session.id.value()));
  return Close({.key = {session.id, epoch}, .term = term, .plan = {}, .route = {}},
               AbandonedRecord(why));
}

absl::StatusOr<std::vector<SqliteLedger::Session>> SqliteLedger::WithoutOutcome(
    std::optional<Term> before) {
  SL_ASSIGN_OR_RETURN(
      SqliteStatement find,
      writer_->Query(absl::StrCat(kSessionColumns, "WHERE outcome = 0 AND term < ? ORDER BY id"),
                     before ? Clamped(before->value()) : Clamped(~uint64_t{0})));
  std::vector<Session> sessions;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return sessions;
    sessions.push_back(SessionRow(find));
  }
}

absl::StatusOr<std::optional<AttemptRecord>> SqliteLedger::FindRecord(const AttemptKey& key) {
  SL_ASSIGN_OR_RETURN(
      SqliteStatement find,
      writer_->Query(absl::StrCat(kRecordColumns, "WHERE session = ? AND epoch = ?"),
                     key.session.value(), key.epoch.value()));
  SL_ASSIGN_OR_RETURN(const bool known, find.Step());
  return known ? std::optional(EntryRow(find).record) : std::nullopt;
}

absl::StatusOr<AttemptRecord> SqliteLedger::RecordAt(uint64_t sequence) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_->Query(absl::StrCat(kRecordColumns, "WHERE sequence = ?"), sequence));
  SL_ASSIGN_OR_RETURN(const bool known, find.Step());
  if (!known) {
    return absl::DataLossError(
        absl::StrCat("store ", writer_->db()->path(), ": record ", sequence, " is not there"));
  }
  return EntryRow(find).record;
}

absl::StatusOr<std::vector<LedgerEntry>> SqliteLedger::List(const LedgerQuery& query) {
  SL_ASSIGN_OR_RETURN(SqliteStatement find,
                      writer_->Query(absl::StrCat(kRecordColumns, "WHERE sequence > ?",
                                                  Filter(query), " ORDER BY sequence LIMIT ?"),
                                     Clamped(query.after), Clamped(query.limit)));
  std::vector<LedgerEntry> entries;
  while (true) {
    SL_ASSIGN_OR_RETURN(const bool row, find.Step());
    if (!row) return entries;
    entries.push_back(EntryRow(find));
  }
}

absl::StatusOr<uint64_t> SqliteLedger::Count(const LedgerQuery& query) {
  SL_ASSIGN_OR_RETURN(const int64_t count,
                      writer_->db()->QueryInt(absl::StrCat(
                          "SELECT count(*) FROM records WHERE sequence > 0", Filter(query))));
  return static_cast<uint64_t>(count);
}

absl::StatusOr<uint64_t> SqliteLedger::RecordCount() {
  SL_ASSIGN_OR_RETURN(const int64_t last,
                      writer_->db()->QueryInt("SELECT coalesce(max(sequence), 0) FROM records"));
  return static_cast<uint64_t>(last);
}

absl::StatusOr<uint64_t> SqliteLedger::AppendRecord(LedgerEntry entry) {
  SL_ASSIGN_OR_RETURN(SqliteStatement last, writer_->Query("SELECT sequence, hash FROM records "
                                                           "ORDER BY sequence DESC LIMIT 1"));
  SL_ASSIGN_OR_RETURN(const bool any, last.Step());
  entry.sequence = any ? last.Unsigned(0) + 1 : 1;
  entry.hash = LedgerHash(any ? last.Text(1) : "", entry);
  const AttemptRecord& record = entry.record;
  SL_RETURN_IF_ERROR(writer_->Run(
      "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", entry.sequence,
      entry.key.session.value(), entry.key.epoch.value(), entry.term.value(), entry.plan.value(),
      entry.route, static_cast<int64_t>(record.state), record.prompt_tokens, record.tokens,
      record.work_tokens, record.digest, static_cast<int64_t>(record.kind), record.detail,
      entry.finished_unix_ms, entry.hash));
  return entry.sequence;
}

}  // namespace shardline
