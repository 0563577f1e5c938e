#include "coordinator/data_dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace shardline {

absl::StatusOr<DataDirLock> DataDirLock::Take(const std::string& data_dir) {
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the data directory ", data_dir, ": ", error.message()));
  }
  const std::string path = (std::filesystem::path(data_dir) / "lock").string();
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  DataDirLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(absl::StrCat("another coordinator uses the data directory ",
                                               data_dir, "; stop it, or give another --data-dir"));
  }
  return lock;
}

DataDirLock::~DataDirLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace shardline
