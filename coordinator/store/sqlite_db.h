#pragma once

// SQLite's C interface with checked return codes: a connection, and statements on it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;
struct sqlite3_vfs;

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
  SqliteStatement& Bind(const std::string& value) { return Bind(std::string_view(value)); }

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
  // `vfs` empty: the system's. The write-ahead log is copied into the file by Checkpoint and at
  // the close, never in between.
  static absl::StatusOr<std::unique_ptr<SqliteDb>> Open(const std::string& path,
                                                        absl::Duration busy_timeout,
                                                        const std::string& vfs);
  ~SqliteDb();
  SqliteDb(const SqliteDb&) = delete;
  SqliteDb& operator=(const SqliteDb&) = delete;

  absl::StatusOr<SqliteStatement> Prepare(std::string_view sql);
  // Statements without results and parameters; several are separated by ';'.
  absl::Status Execute(const std::string& sql);
  // The first column of the first row.
  absl::StatusOr<int64_t> QueryInt(std::string_view sql);
  absl::StatusOr<std::string> QueryText(std::string_view sql);

  // Frames in the write-ahead log after the last commit.
  int log_frames() const { return log_frames_; }
  // Copies what it can of the log into the file. A full disk and a reader in the way are no errors.
  absl::Status Checkpoint();
  void KeepLogOnClose();

  // Of the database itself, as the VFS calls it; empty for one in memory.
  std::string FileName() const;
  sqlite3_vfs* Vfs() const;
  static constexpr int64_t kPagesMax = 4294967294;

  // What a return code means to callers of the store, naming the file.
  absl::Status ToStatus(int code);
  // Whether a code since the last call was of a full disk, or of PRAGMA max_page_count.
  bool TakeWasFull() { return std::exchange(was_full_, false); }
  const std::string& path() const { return path_; }

 private:
  SqliteDb(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}

  sqlite3* db_;
  const std::string path_;
  int log_frames_ = 0;
  bool was_full_ = false;
};

}  // namespace shardline
