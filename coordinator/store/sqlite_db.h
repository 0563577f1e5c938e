#pragma once

// SQLite's C interface with checked return codes: a connection, and statements on it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace shardline {

// One prepared statement. Parameters and columns count from 0.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  SqliteStatement& Bind(int64_t value);
  SqliteStatement& Bind(uint64_t value) { return Bind(static_cast<int64_t>(value)); }
  SqliteStatement& Bind(std::string_view value);

  // True: a row is there. False: done. Reports a failed Bind, too.
  absl::StatusOr<bool> Step();
  // REQUIRES: done without a row.
  absl::Status Run();

  int64_t Int(int column) const;
  uint64_t Unsigned(int column) const { return static_cast<uint64_t>(Int(column)); }
  std::string Text(int column) const;

 private:
  friend class SqliteDb;
  SqliteStatement(sqlite3_stmt* stmt, class SqliteDb* db) : stmt_(stmt), db_(db) {}

  sqlite3_stmt* stmt_;
  SqliteDb* db_;
  int next_ = 1;       // Parameter; SQLite counts them from 1.
  int bind_code_ = 0;  // The first failure.
};

class SqliteDb {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteDb>> Open(const std::string& path,
                                                        absl::Duration busy_timeout);
  ~SqliteDb();
  SqliteDb(const SqliteDb&) = delete;
  SqliteDb& operator=(const SqliteDb&) = delete;

  absl::StatusOr<SqliteStatement> Prepare(std::string_view sql);
  // Statements without results and parameters; several are separated by ';'.
  absl::Status Execute(const std::string& sql);
  // The first column of the first row.
  absl::StatusOr<int64_t> QueryInt(std::string_view sql);
  absl::StatusOr<std::string> QueryText(std::string_view sql);

  // What a return code means to callers of the store, naming the file.
  absl::Status ToStatus(int code) const;
  const std::string& path() const { return path_; }

 private:
  SqliteDb(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}

  sqlite3* db_;
  const std::string path_;
};

}  // namespace shardline
