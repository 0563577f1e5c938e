#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

int64_t ModifiedNs(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

absl::Status Failed(const std::string& path, const char* what, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // Non-blocking, or a FIFO in the file's place would hold us for ever.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return Failed(path, "cannot be opened", errno);
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) return Failed(path, "cannot be examined", errno);
  if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(path, ": not a regular file with content"));
  }
  const size_t size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (data == MAP_FAILED) return Failed(path, "cannot be mapped", errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.modified_ns_ = ModifiedNs(status);
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status MappedFile::CheckUnchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return Failed(path_, "cannot be examined", errno);
  if (static_cast<size_t>(status.st_size) != size_ || ModifiedNs(status) != modified_ns_) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(path_, ": changed since it was opened with ", size_,
                                    " bytes; replace model files by rename"));
  }
  return absl::OkStatus();
}

}  // namespace shardline
