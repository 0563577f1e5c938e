#include "tests/support/sim_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <utility>

#include "base/check.h"

namespace shardline::testing {
namespace {

constexpr int64_t kSectorBytes = 512;

// A write at `offset`, or a cut to `offset` bytes.
struct Change {
  int64_t offset = 0;
  std::string bytes;
  bool truncates = false;
};

void Apply(const Change& change, std::string& content) {
  const auto offset = static_cast<size_t>(change.offset);
  if (change.truncates) {
    content.resize(std::min(content.size(), offset));
    return;
  }
  if (content.size() < offset + change.bytes.size()) content.resize(offset + change.bytes.size());
  content.replace(offset, change.bytes.size(), change.bytes);
}

}  // namespace

struct SimVfs::File {
  std::string content;                          // As readers see it.
  std::string synced;                           // As it was at the last sync.
  std::vector<Change> changes;                  // Since then, in order.
  std::vector<std::unique_ptr<char[]>> shared;  // The write-ahead log's index: memory, not disk.
};

namespace {

// SQLite allocates it and calls no constructor.
struct Handle {
  sqlite3_file base;
  SimVfs* disk;
  SimVfs::File* file;
  std::shared_ptr<SimVfs::File> owner;
};

Handle* Of(sqlite3_file* file) { return reinterpret_cast<Handle*>(file); }
SimVfs* Of(sqlite3_vfs* vfs) { return static_cast<SimVfs*>(vfs->pAppData); }

}  // namespace

struct SimVfs::Hooks {
  static int Close(sqlite3_file* file) {
    Of(file)->~Handle();
    return SQLITE_OK;
  }

  static int Read(sqlite3_file* file, void* out, int count, sqlite3_int64 offset) {
    const std::string& content = Of(file)->file->content;
    const auto begin = std::min(static_cast<size_t>(offset), content.size());
    const size_t there = std::min(static_cast<size_t>(count), content.size() - begin);
    if (there > 0) std::memcpy(out, content.data() + begin, there);
    if (there == static_cast<size_t>(count)) return SQLITE_OK;
    std::memset(static_cast<char*>(out) + there, 0, static_cast<size_t>(count) - there);
    return SQLITE_IOERR_SHORT_READ;
  }

  static int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 offset) {
    SimVfs& disk = *Of(file)->disk;
    File& node = *Of(file)->file;
    if (const int code = disk.Meet(false); code != SQLITE_OK) return SQLITE_IOERR_WRITE;
    const int64_t more = offset + count - static_cast<int64_t>(node.content.size());
    if (more > 0 && !disk.Fits(more)) return SQLITE_FULL;
    Note(node, {.offset = offset,
                .bytes = std::string(static_cast<const char*>(bytes), static_cast<size_t>(count))});
    return SQLITE_OK;
  }

  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    if (Of(file)->disk->Meet(false) != SQLITE_OK) return SQLITE_IOERR_TRUNCATE;
    Note(*Of(file)->file, {.offset = size, .bytes = {}, .truncates = true});
    return SQLITE_OK;
  }

  static int Sync(sqlite3_file* file, int) {
    SimVfs& disk = *Of(file)->disk;
    File& node = *Of(file)->file;
    if (disk.on_sync_) disk.on_sync_();
    if (const int code = disk.Meet(true); code != SQLITE_OK) {
      // As Linux does it: the pages count as clean, and the next sync says that all is well.
      if (!disk.cut_) node.changes.clear();
      return SQLITE_IOERR_FSYNC;
    }
    for (const Change& change : node.changes) Apply(change, node.synced);
    node.changes.clear();
    return SQLITE_OK;
  }

  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    *size = static_cast<sqlite3_int64>(Of(file)->file->content.size());
    return SQLITE_OK;
  }
  static int Lock(sqlite3_file*, int) { return SQLITE_OK; }
  static int CheckReservedLock(sqlite3_file*, int* locked) {
    *locked = 0;
    return SQLITE_OK;
  }
  static int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int SectorSize(sqlite3_file*) { return kSectorBytes; }
  static int Characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static int ShmMap(sqlite3_file* file, int region, int size, int extend, void volatile** out) {
    auto& shared = Of(file)->file->shared;
    const auto index = static_cast<size_t>(region);
    *out = nullptr;
    if (index >= shared.size() && extend == 0) return SQLITE_OK;
    while (shared.size() <= index) {
      shared.push_back(std::make_unique<char[]>(static_cast<size_t>(size)));
    }
    *out = shared[index].get();
    return SQLITE_OK;
  }
  static int ShmLock(sqlite3_file*, int, int, int) { return SQLITE_OK; }
  static void ShmBarrier(sqlite3_file*) {}
  static int ShmUnmap(sqlite3_file* file, int remove) {
    if (remove != 0) Of(file)->file->shared.clear();
    return SQLITE_OK;
  }

  static int Open(sqlite3_vfs* vfs, sqlite3_filename path, sqlite3_file* out, int flags,
                  int* out_flags) {
    static const sqlite3_io_methods methods = {
        .iVersion = 2,
        .xClose = Close,
        .xRead = Read,
        .xWrite = Write,
        .xTruncate = Truncate,
        .xSync = Sync,
        .xFileSize = FileSize,
        .xLock = Lock,
        .xUnlock = Lock,
        .xCheckReservedLock = CheckReservedLock,
        .xFileControl = FileControl,
        .xSectorSize = SectorSize,
        .xDeviceCharacteristics = Characteristics,
        .xShmMap = ShmMap,
        .xShmLock = ShmLock,
        .xShmBarrier = ShmBarrier,
        .xShmUnmap = ShmUnmap,
        .xFetch = nullptr,
        .xUnfetch = nullptr,
    };
    SimVfs* disk = Of(vfs);
    out->pMethods = nullptr;
    if (disk->cut_) return SQLITE_CANTOPEN;
    std::shared_ptr<File> node;
    if (path == nullptr) {
      node = std::make_shared<File>();
    } else {
      std::shared_ptr<File>& named = disk->files_[path];
      if (named == nullptr) named = std::make_shared<File>();
      node = named;
    }
    new (out)
        Handle{.base = {.pMethods = &methods}, .disk = disk, .file = node.get(), .owner = node};
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  }

  // Durable at once: what lives on after a lost deletion is a log that SQLite knows to be old.
  static int Delete(sqlite3_vfs* vfs, const char* path, int) {
    SimVfs* disk = Of(vfs);
    if (disk->Meet(false) != SQLITE_OK) return SQLITE_IOERR_DELETE;
    return disk->files_.erase(path) == 0 ? SQLITE_IOERR_DELETE_NOENT : SQLITE_OK;
  }
  static int Access(sqlite3_vfs* vfs, const char* path, int, int* out) {
    *out = Of(vfs)->files_.contains(path) ? 1 : 0;
    return SQLITE_OK;
  }
  static int FullPathname(sqlite3_vfs*, const char* path, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", path);
    return SQLITE_OK;
  }
  static int Randomness(sqlite3_vfs*, int count, char* out) {
    std::memset(out, 7, static_cast<size_t>(count));
    return count;
  }
  static int Sleep(sqlite3_vfs*, int microseconds) { return microseconds; }
  static int CurrentTime(sqlite3_vfs*, double* out) {
    *out = 0;
    return SQLITE_OK;
  }
  static int GetLastError(sqlite3_vfs*, int, char*) { return SQLITE_OK; }

  static void Note(File& node, Change change) {
    Apply(change, node.content);
    node.changes.push_back(std::move(change));
  }
};

SimVfs::SimVfs(std::string name) : name_(std::move(name)), vfs_(std::make_unique<sqlite3_vfs>()) {
  *vfs_ = {};
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(Handle);
  vfs_->mxPathname = 256;
  vfs_->zName = name_.c_str();
  vfs_->pAppData = this;
  vfs_->xOpen = Hooks::Open;
  vfs_->xDelete = Hooks::Delete;
  vfs_->xAccess = Hooks::Access;
  vfs_->xFullPathname = Hooks::FullPathname;
  vfs_->xRandomness = Hooks::Randomness;
  vfs_->xSleep = Hooks::Sleep;
  vfs_->xCurrentTime = Hooks::CurrentTime;
  vfs_->xGetLastError = Hooks::GetLastError;
  SL_CHECK(sqlite3_vfs_register(vfs_.get(), 0) == SQLITE_OK);
}

SimVfs::~SimVfs() { sqlite3_vfs_unregister(vfs_.get()); }

void SimVfs::FailAt(int64_t operation, DiskFault fault) {
  fail_at_ = operation;
  fault_ = fault;
}

int SimVfs::Meet(bool is_sync) {
  if (cut_) return SQLITE_IOERR;
  if (operations_++ < fail_at_) return SQLITE_OK;
  if (fault_ == DiskFault::kPowerCut) {
    cut_ = true;
    return SQLITE_IOERR;
  }
  if (is_sync != (fault_ == DiskFault::kSyncError)) return SQLITE_OK;
  fail_at_ = std::numeric_limits<int64_t>::max();
  return SQLITE_IOERR;
}

int64_t SimVfs::bytes_used() const {
  int64_t bytes = 0;
  for (const auto& [path, file] : files_) bytes += static_cast<int64_t>(file->content.size());
  return bytes;
}

void SimVfs::Restart(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (auto& [path, file] : files_) {
    std::string content = file->synced;
    for (const Change& change : file->changes) {
      const uint64_t fate = random() % 4;
      if (fate == 0) continue;
      if (fate != 1 || change.truncates) {
        Apply(change, content);
        continue;
      }
      const auto size = static_cast<int64_t>(change.bytes.size());
      for (int64_t at = 0; at < size; at += kSectorBytes) {
        if (random() % 2 == 0) continue;
        const auto count = static_cast<size_t>(std::min(kSectorBytes, size - at));
        Apply({.offset = change.offset + at,
               .bytes = change.bytes.substr(static_cast<size_t>(at), count)},
              content);
      }
    }
    // Whoever still has the old file open keeps it; it is nobody's any more.
    auto fresh = std::make_shared<File>();
    fresh->content = content;
    fresh->synced = std::move(content);
    file = std::move(fresh);
  }
  cut_ = false;
  fail_at_ = std::numeric_limits<int64_t>::max();
}

void SimVfs::FlipBit(const std::string& path, int64_t byte, int bit) {
  File& file = *files_.at(path);
  const auto index = static_cast<size_t>(byte);
  for (std::string* copy : {&file.content, &file.synced}) {
    SL_CHECK(index < copy->size());
    (*copy)[index] = static_cast<char>((*copy)[index] ^ (1 << bit));
  }
}

std::string SimVfs::Contents(const std::string& path) const {
  auto found = files_.find(path);
  return found == files_.end() ? "" : found->second->content;
}

}  // namespace shardline::testing
