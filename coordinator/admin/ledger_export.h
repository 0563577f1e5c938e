#pragma once

// One ExportRecords call: a page from the store's thread, then its records one by one as fast as
// the operator reads, then the next page. So no more than a page is in memory, and the store's
// thread is lent for one page at a time.

#include <atomic>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "coordinator/admin/admin_service.h"
#include "coordinator/store/store.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

// Deletes itself in OnDone. Either a page is being fetched or a record being written, never both,
// and only then does anything touch the members below.
class LedgerExport final : public grpc::ServerWriteReactor<v1::LedgerRecord> {
 public:
  LedgerExport(AdminEvents* events, const v1::ListRecordsRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override { delete this; }

 private:
  void FetchPage();
  void TakePage(absl::StatusOr<std::vector<LedgerEntry>> page);
  void WriteNext();

  AdminEvents* const events_;
  std::atomic<bool> cancelled_{false};

  LedgerQuery query_;  // For the rest: its limit shrinks.
  std::vector<LedgerEntry> page_;
  size_t next_ = 0;
  v1::LedgerRecord record_;  // Being written.
};

}  // namespace shardline
