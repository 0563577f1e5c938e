#pragma once

// One coordinator a data directory. The store would fence the older of two by its term; this
// tells the second at once, before it takes anybody's reign.

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace shardline {

// Held until destroyed, or until the process ends in whatever way.
class DataDirLock {
 public:
  // Makes the directory if it is missing. kUnavailable, in one line, when another process holds
  // it or it cannot be made.
  static absl::StatusOr<DataDirLock> Take(const std::string& data_dir);

  DataDirLock(DataDirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DataDirLock& operator=(DataDirLock&&) = delete;
  ~DataDirLock();

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}

  int fd_;  // -1 once moved from.
};

}  // namespace shardline
