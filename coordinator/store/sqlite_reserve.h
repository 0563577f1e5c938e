#pragma once

// Disk space that records can always have: a file of zeros beside the database, given up when the
// disk is full.
//
// The write-ahead log grows with every commit, so room inside the database would not help. Nothing
// else may eat what is given up; should something, the record is refused like any other write.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/store/sqlite_db.h"

struct sqlite3_file;

namespace shardline {

class SqliteReserve {
 public:
  // `db` outlives this. A database in memory needs no file: then all calls succeed.
  explicit SqliteReserve(SqliteDb* db);
  ~SqliteReserve();
  SqliteReserve(const SqliteReserve&) = delete;
  SqliteReserve& operator=(const SqliteReserve&) = delete;

  // At least `bytes` are held, or the error says why not (kOverloaded: the disk is full).
  absl::Status Hold(int64_t bytes);
  // Gives everything up. False: nothing was held.
  bool Release();

 private:
  absl::Status OpenFile();

  SqliteDb* const db_;
  const std::string path_;             // Empty: in memory.
  std::unique_ptr<std::byte[]> file_;  // A sqlite3_file of the database's VFS, once open.
  int64_t held_ = 0;

  sqlite3_file* file() const { return reinterpret_cast<sqlite3_file*>(file_.get()); }
};

}  // namespace shardline
