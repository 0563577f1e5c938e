#pragma once

// Where `shardctl ledger export` writes: stdout, or a file that appears under its name only when it
// is whole.

#include <fstream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

enum class ExportFormat { kCsv, kJson };

class LedgerExportFile {
 public:
  // `path` empty: `out` is written to.
  LedgerExportFile(std::string path, std::ostream* out, ExportFormat format);
  ~LedgerExportFile();  // What is not finished is gone.
  LedgerExportFile(const LedgerExportFile&) = delete;
  LedgerExportFile& operator=(const LedgerExportFile&) = delete;

  void Add(const v1::LedgerRecord& record);
  // NotFound or Internal, naming the file: it could not be made, written or renamed.
  absl::Status Finish();

  uint64_t records() const { return records_; }

 private:
  std::ostream& out() { return path_.empty() ? *stdout_ : file_; }

  const std::string path_;
  const std::string partial_;
  std::ostream* const stdout_;
  const ExportFormat format_;
  std::ofstream file_;
  uint64_t records_ = 0;
};

}  // namespace shardline
