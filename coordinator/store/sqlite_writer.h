#pragma once

// Transactions on the store's file, and what every write obeys: the newest term alone writes,
// records may use the reserve, and after an I/O error nothing is written any more.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "base/id.h"
#include "base/status_macros.h"
#include "coordinator/store/sqlite_db.h"
#include "coordinator/store/sqlite_reserve.h"

namespace shardline {

class SqliteWriter {
 public:
  // `pages_max` limits the file for all but records; 0: the disk does.
  SqliteWriter(std::unique_ptr<SqliteDb> db, int64_t pages_max, std::function<int64_t()> unix_ms,
               std::function<void(const absl::Status&)> on_broken);

  // Runs `body` between BEGIN IMMEDIATE and COMMIT; anything but OK rolls back.
  absl::Status Write(const std::function<absl::Status()>& body);
  // As Write; when the disk is full, once more after the reserve is given up. `body` may run twice.
  absl::Status WriteReserved(const std::function<absl::Status()>& body);
  // In front of a body: refuses it unless `term` is the newest one.
  absl::Status CheckTerm(Term term);
  absl::Status WriteIn(Term term, const std::function<absl::Status()>& body);
  absl::Status WriteReservedIn(Term term, const std::function<absl::Status()>& body);

  // In a body: refuses it (kOverloaded) unless the reserve holds `bytes`.
  absl::Status Hold(int64_t bytes);

  // `sql` with its parameters bound in order, run to its end.
  template <typename... Values>
  absl::Status Run(std::string_view sql, const Values&... values) {
    SL_ASSIGN_OR_RETURN(SqliteStatement statement, db_->Prepare(sql));
    (statement.Bind(values), ...);
    return statement.Run();
  }
  // `sql` likewise, to be stepped through.
  template <typename... Values>
  absl::StatusOr<SqliteStatement> Query(std::string_view sql, const Values&... values) {
    SL_ASSIGN_OR_RETURN(SqliteStatement statement, db_->Prepare(sql));
    (statement.Bind(values), ...);
    return statement;
  }

  SqliteDb* db() { return db_.get(); }
  // What a record is stamped with.
  int64_t UnixMs() const { return unix_ms_(); }

 private:
  absl::Status Transact(const std::function<absl::Status()>& body);
  // Takes note of an error that breaks the store.
  absl::Status Noted(absl::Status status);
  void LimitPages(int64_t pages);

  const std::unique_ptr<SqliteDb> db_;
  const int64_t pages_max_;
  const std::function<int64_t()> unix_ms_;
  const std::function<void(const absl::Status&)> on_broken_;
  SqliteReserve reserve_;
  absl::Status broken_;
};

}  // namespace shardline
