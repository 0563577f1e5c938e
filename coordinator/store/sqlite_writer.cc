#include "coordinator/store/sqlite_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "coordinator/store/ledger_rules.h"

namespace shardline {
namespace {

// Frames in the write-ahead log before they are copied into the file.
constexpr int kCheckpointFrames = 1000;

}  // namespace

SqliteWriter::SqliteWriter(std::unique_ptr<SqliteDb> db, int64_t pages_max,
                           std::function<int64_t()> unix_ms,
                           std::function<void(const absl::Status&)> on_broken)
    : db_(std::move(db)),
      pages_max_(pages_max),
      unix_ms_(std::move(unix_ms)),
      on_broken_(std::move(on_broken)),
      reserve_(db_.get()) {
  LimitPages(pages_max_);
}

void SqliteWriter::LimitPages(int64_t pages) {
  if (pages_max_ == 0) return;
  db_->QueryInt(absl::StrCat("PRAGMA max_page_count = ", pages)).status().IgnoreError();
}

absl::Status SqliteWriter::Noted(absl::Status status) {
  if (!StoreIsBroken(status) || !broken_.ok()) return status;
  broken_ = absl::Status(
      status.code(), absl::StrCat(status.message(), "; nothing more is written until a restart"));
  // The log may not be what was synced: it must not be copied into the file on the way out.
  db_->KeepLogOnClose();
  if (on_broken_) on_broken_(status);
  return status;
}

absl::Status SqliteWriter::Transact(const std::function<absl::Status()>& body) {
  SL_RETURN_IF_ERROR(broken_);
  absl::Status status = db_->Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return Noted(std::move(status));
  status = body();
  if (status.ok()) status = db_->Execute("COMMIT");
  if (!status.ok()) {
    // After some errors SQLite has rolled back by itself, and there is nothing left to do.
    db_->Execute("ROLLBACK").IgnoreError();
    return Noted(std::move(status));
  }
  if (db_->log_frames() >= kCheckpointFrames) {
    // This write is durable whatever comes of it; a full disk lets the log grow for a while.
    Noted(db_->Checkpoint()).IgnoreError();
  }
  return status;
}

absl::Status SqliteWriter::Write(const std::function<absl::Status()>& body) {
  return Transact(body);
}

absl::Status SqliteWriter::WriteReserved(const std::function<absl::Status()>& body) {
  db_->TakeWasFull();
  absl::Status status = Transact(body);
  if (status.ok() || !db_->TakeWasFull()) return status;
  const bool more = reserve_.Release();
  if (pages_max_ == 0 && !more) return status;
  LimitPages(SqliteDb::kPagesMax);
  return Transact(body);
}

absl::Status SqliteWriter::CheckTerm(Term term) {
  SL_ASSIGN_OR_RETURN(const int64_t newest, db_->QueryInt("SELECT term FROM meta"));
  const Term standing(static_cast<uint64_t>(newest));
  return term == standing ? absl::OkStatus() : OldTerm(db_->path(), term, standing);
}

absl::Status SqliteWriter::WriteIn(Term term, const std::function<absl::Status()>& body) {
  return Write([&]() -> absl::Status {
    SL_RETURN_IF_ERROR(CheckTerm(term));
    return body();
  });
}

absl::Status SqliteWriter::WriteReservedIn(Term term, const std::function<absl::Status()>& body) {
  return WriteReserved([&]() -> absl::Status {
    SL_RETURN_IF_ERROR(CheckTerm(term));
    return body();
  });
}

absl::Status SqliteWriter::Hold(int64_t bytes) {
  LimitPages(pages_max_);
  return reserve_.Hold(bytes);
}

}  // namespace shardline
