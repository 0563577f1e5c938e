#include "coordinator/store/sqlite_db.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : stmt_(std::exchange(other.stmt_, nullptr)),
      db_(other.db_),
      next_(other.next_),
      bind_code_(other.bind_code_) {}

// A statement that failed says so again here; Step has reported it.
SqliteStatement::~SqliteStatement() { sqlite3_finalize(stmt_); }

SqliteStatement& SqliteStatement::Bind(int64_t value) {
  const int code = sqlite3_bind_int64(stmt_, next_++, value);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::Bind(std::string_view value) {
  // A null pointer would bind NULL.
  const char* data = value.data() == nullptr ? "" : value.data();
  const int code = sqlite3_bind_blob64(stmt_, next_++, data, value.size(), SQLITE_TRANSIENT);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (bind_code_ != SQLITE_OK) return db_->ToStatus(bind_code_);
  const int code = sqlite3_step(stmt_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return db_->ToStatus(code);
}

absl::Status SqliteStatement::Run() {
  SL_ASSIGN_OR_RETURN(const bool row, Step());
  if (row) return absl::InternalError("a statement without results returned a row");
  return absl::OkStatus();
}

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(stmt_, column); }

std::string SqliteStatement::Text(int column) const {
  const void* data = sqlite3_column_blob(stmt_, column);
  const int size = sqlite3_column_bytes(stmt_, column);
  if (data == nullptr) return std::string();
  return std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

absl::StatusOr<std::unique_ptr<SqliteDb>> SqliteDb::Open(const std::string& path,
                                                         absl::Duration busy_timeout,
                                                         const std::string& vfs) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE,
      vfs.empty() ? nullptr : vfs.c_str());
  std::unique_ptr<SqliteDb> db(new SqliteDb(handle, path));
  if (code != SQLITE_OK) return db->ToStatus(code);
  SL_RETURN_IF_ERROR(db->ToStatus(
      sqlite3_busy_timeout(handle, static_cast<int>(absl::ToInt64Milliseconds(busy_timeout)))));
  // In place of the automatic checkpoint, whose errors nobody would hear of.
  sqlite3_wal_hook(
      handle,
      [](void* self, sqlite3*, const char*, int frames) {
        static_cast<SqliteDb*>(self)->log_frames_ = frames;
        return SQLITE_OK;
      },
      db.get());
  return db;
}

absl::Status SqliteDb::Checkpoint() {
  const int code =
      sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  const int kind = code & 0xFF;
  if (kind == SQLITE_FULL || kind == SQLITE_BUSY || kind == SQLITE_LOCKED) return absl::OkStatus();
  return ToStatus(code);
}

void SqliteDb::KeepLogOnClose() {
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

std::string SqliteDb::FileName() const {
  const char* name = sqlite3_db_filename(db_, "main");
  return name == nullptr ? "" : name;
}

sqlite3_vfs* SqliteDb::Vfs() const {
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(db_, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  return vfs;
}

SqliteDb::~SqliteDb() { sqlite3_close_v2(db_); }

absl::StatusOr<SqliteStatement> SqliteDb::Prepare(std::string_view sql) {
  sqlite3_stmt* stmt = nullptr;
  SL_RETURN_IF_ERROR(
      ToStatus(sqlite3_prepare_v2(db_, sql.data(), static_cast<int>(sql.size()), &stmt, nullptr)));
  return SqliteStatement(stmt, this);
}

absl::Status SqliteDb::Execute(const std::string& sql) {
  return ToStatus(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<int64_t> SqliteDb::QueryInt(std::string_view sql) {
  SL_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  SL_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::DataLossError(absl::StrCat(path_, ": no row where one must be"));
  return statement.Int(0);
}

absl::StatusOr<std::string> SqliteDb::QueryText(std::string_view sql) {
  SL_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  SL_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::DataLossError(absl::StrCat(path_, ": no row where one must be"));
  return statement.Text(0);
}

absl::Status SqliteDb::ToStatus(int code) {
  if (code == SQLITE_OK) return absl::OkStatus();
  const std::string message = absl::StrCat("store ", path_, ": ", sqlite3_errstr(code), " (",
                                           db_ == nullptr ? "no handle" : sqlite3_errmsg(db_), ")");
  switch (code & 0xFF) {
    case SQLITE_FULL:
      was_full_ = true;
      return MakeFailure(
          FailureDetail{.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(10)},
          absl::StrCat(message, "; free some disk space"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return MakeFailure(
          FailureDetail{.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(1)},
          absl::StrCat(message, "; another process writes to it"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(message, "; restore it from a backup"));
    case SQLITE_CANTOPEN:
      return absl::NotFoundError(absl::StrCat(message, "; does its directory exist?"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(message);
    case SQLITE_CONSTRAINT:
      return absl::InternalError(absl::StrCat(message, "; an invariant of the ledger was broken"));
    default:
      return absl::InternalError(message);
  }
}

}  // namespace shardline
