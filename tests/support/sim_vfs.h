#pragma once

// A disk in memory for SQLite: it loses and tears what was not synced, fills up, fails and is slow,
// when and how the test says.
//
// A file is what was last synced and the writes since. A power cut fails every call from then on;
// Restart() decides with a seed which of the unsynced writes survived, each whole, torn at a sector
// or not at all, and mends the disk. Connections of before the cut must be closed by then.
// Registers itself with SQLite under its name; of one thread. It has no locks: one connection to a
// file at a time.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct sqlite3_vfs;

namespace shardline::testing {

enum class DiskFault {
  kPowerCut,    // This operation and all after it fail, until Restart.
  kWriteError,  // This one alone; what it was to write is not there.
  kSyncError,   // As kWriteError for a sync: what was to be synced may be lost for ever.
};

class SimVfs {
 public:
  explicit SimVfs(std::string name);
  ~SimVfs();
  SimVfs(const SimVfs&) = delete;
  SimVfs& operator=(const SimVfs&) = delete;

  const std::string& name() const { return name_; }

  // Writes, truncations, syncs and deletions so far: what can fail, and where a cut can fall.
  int64_t operations() const { return operations_; }
  // At the operation with this number, counted from 0; one that does not fit (a write error at a
  // sync) waits for the next that does.
  void FailAt(int64_t operation, DiskFault fault);
  void Restart(uint64_t seed);
  // Of all files together; a write that needs more fails with SQLITE_FULL.
  void SetCapacity(int64_t bytes) { capacity_ = bytes; }
  int64_t bytes_used() const;
  // Called in front of every sync, for a disk that takes its time.
  void SetOnSync(std::function<void()> on_sync) { on_sync_ = std::move(on_sync); }

  // As a rotten disk does it, behind SQLite's back.
  void FlipBit(const std::string& path, int64_t byte, int bit);
  std::string Contents(const std::string& path) const;

  struct File;
  struct Hooks;  // SQLite's callbacks.

 private:
  friend struct Hooks;

  // What the operation that comes now meets; counts it.
  int Meet(bool is_sync);
  bool Fits(int64_t more) const { return bytes_used() + more <= capacity_; }

  const std::string name_;
  const std::unique_ptr<sqlite3_vfs> vfs_;
  std::map<std::string, std::shared_ptr<File>> files_;
  int64_t operations_ = 0;
  int64_t fail_at_ = std::numeric_limits<int64_t>::max();
  DiskFault fault_ = DiskFault::kPowerCut;
  bool cut_ = false;
  int64_t capacity_ = std::numeric_limits<int64_t>::max();
  std::function<void()> on_sync_;
};

}  // namespace shardline::testing
