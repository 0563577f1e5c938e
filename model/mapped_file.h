#pragma once

// A whole regular file, mapped read-only.
//
// A file that somebody truncates in place while it is mapped kills the process with SIGBUS at the
// next touch of a lost page; no read can prevent that. Replace model files by rename, which leaves
// the mapping intact. CheckUnchanged finds a file that was rewritten before its bytes are trusted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardline {

class MappedFile {
 public:
  // Absl NotFound if there is no such file; kInvalidRequest if it is no regular file or empty.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // kInvalidRequest if the mapped file's size or modification time is not that of Open.
  absl::Status CheckUnchanged() const;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;

  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace shardline
