#include "coordinator/ctl/ledger_export_file.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/ctl/json_view.h"
#include "coordinator/ctl/ledger_views.h"

namespace shardline {

LedgerExportFile::LedgerExportFile(std::string path, std::ostream* out, ExportFormat format)
    : path_(std::move(path)), partial_(path_ + ".partial"), stdout_(out), format_(format) {
  if (!path_.empty()) file_.open(partial_, std::ios::binary | std::ios::trunc);
  this->out() << (format_ == ExportFormat::kCsv ? RecordCsvHeader() : RecordListJsonBegin());
}

LedgerExportFile::~LedgerExportFile() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void LedgerExportFile::Add(const v1::LedgerRecord& record) {
  if (format_ == ExportFormat::kCsv) {
    out() << RecordCsvLine(record);
  } else {
    out() << RecordListJsonItem(record, records_ == 0);
  }
  ++records_;
}

absl::Status LedgerExportFile::Finish() {
  if (format_ == ExportFormat::kJson) out() << RecordListJsonEnd(records_ == 0);
  out().flush();
  if (out().fail()) {
    return absl::InternalError(path_.empty() ? "cannot write to stdout"
                                             : absl::StrCat("cannot write ", partial_));
  }
  if (path_.empty()) return absl::OkStatus();
  file_.close();
  std::error_code error;
  if (!file_.fail()) std::filesystem::rename(partial_, path_, error);
  if (file_.fail() || error) return absl::InternalError(absl::StrCat("cannot write ", path_));
  return absl::OkStatus();
}

}  // namespace shardline
