#include "coordinator/store/sqlite_reserve.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status_macros.h"

namespace shardline {
namespace {

// Grown in steps, so that few grants pay for it.
constexpr int64_t kStepBytes = 1 << 20;
constexpr int64_t kChunkBytes = 1 << 16;

}  // namespace

SqliteReserve::SqliteReserve(SqliteDb* db)
    : db_(db), path_(db->FileName().empty() ? "" : db->FileName() + "-reserve") {}

SqliteReserve::~SqliteReserve() {
  if (file_ != nullptr) file()->pMethods->xClose(file());
}

absl::Status SqliteReserve::OpenFile() {
  if (file_ != nullptr) return absl::OkStatus();
  sqlite3_vfs* vfs = db_->Vfs();
  const size_t size = static_cast<size_t>(vfs->szOsFile);
  auto memory = std::make_unique<std::byte[]>(size);
  std::memset(memory.get(), 0, size);
  auto* opened = reinterpret_cast<sqlite3_file*>(memory.get());
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MAIN_JOURNAL;
  SL_RETURN_IF_ERROR(db_->ToStatus(vfs->xOpen(vfs, path_.c_str(), opened, flags, nullptr)));
  file_ = std::move(memory);
  sqlite3_int64 bytes = 0;
  SL_RETURN_IF_ERROR(db_->ToStatus(file()->pMethods->xFileSize(file(), &bytes)));
  held_ = bytes;
  return absl::OkStatus();
}

absl::Status SqliteReserve::Hold(int64_t bytes) {
  if (path_.empty()) return absl::OkStatus();
  SL_RETURN_IF_ERROR(OpenFile());
  if (held_ >= bytes) return absl::OkStatus();
  static constexpr char kZeros[kChunkBytes] = {};
  const int64_t before = held_;
  const int64_t target = (bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
  while (held_ < target) {
    const int64_t chunk = std::min(kChunkBytes, target - held_);
    const int code = file()->pMethods->xWrite(file(), kZeros, static_cast<int>(chunk), held_);
    if (code != SQLITE_OK) {
      if (held_ >= bytes) return absl::OkStatus();
      // What came too little is given back: others can use it.
      file()->pMethods->xTruncate(file(), before);
      held_ = before;
      return db_->ToStatus(code);
    }
    held_ += chunk;
  }
  return absl::OkStatus();
}

bool SqliteReserve::Release() {
  if (path_.empty() || !OpenFile().ok() || held_ == 0) return false;
  if (file()->pMethods->xTruncate(file(), 0) != SQLITE_OK) return false;
  held_ = 0;
  return true;
}

}  // namespace shardline
